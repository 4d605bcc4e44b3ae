// Token dispatcher of expert parallelism: sends rows to the ranks that hold their experts, and
// back.
//
// Ranks form a plane of ep x etp. Expert e of E is on ep index i with e in piece_of(E, ep, i)
// (parallel/comm/collectives/collectives.h); the etp ranks of that index hold slices of its
// weights. A row is the C elements of one token for one of its experts. Every rank contributes
// different rows, sorted by expert.
//
//   dispatch   all_to_all_v over ep sends a row to its expert's ep index (same etp index); then
//              every etp rank sends the rows it received to its etp peers, so that all of them have
//              all rows
//   combine    the reverse: partial results are summed over etp, each rank getting the sums for the
//              rows that it received over ep; all_to_all_v over ep returns them to their source
//
// Bytes sent by all ranks together in each direction, for rows of w bytes: over ep exactly w times
// the rows whose expert is on another ep index; over etp w times the rows received over ep, times
// (etp - 1).
//
// No collective depends on the routing: counts are exchanged by two all_gathers of a fixed size,
// and every rank takes part in every round, even with nothing to send.
//
// Rounds: a rank's buffer holds `bound` rows. The rows for an ep index are numbered by (expert, etp
// index of the source, its ep index, position there); round r moves numbers [r bound, (r + 1)
// bound), with the smallest bound of the etp ranks. Every rank has all counts, so all compute the
// same number of rounds: the largest number that any ep index needs.
#pragma once

#include <span>

#include "engine/ops/context.h"
#include "parallel/comm/communicator.h"

namespace trireme {

// Half-open range of row or expert indices.
struct RowRange {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
};

// Sources and destinations of the rows of one round, on this rank.
struct ExpertRound {
  std::vector<int64_t> send_rows;     // (ep) rows for each ep index, in the order of `sent`
  std::vector<RowRange> sent;         // ranges of this rank's rows in this round, in sending order
  std::vector<int64_t> receive_rows;  // (ep) rows from each ep index
  std::vector<int64_t> piece_rows;    // (etp) rows each etp index receives over ep
  struct Move {
    int64_t from = 0;  // in order of arrival: (etp index, ep index, expert)
    int64_t to = 0;    // sorted by expert
    int64_t rows = 0;
  };
  std::vector<Move> moves;       // copies that sort the received rows by expert
  std::vector<int64_t> offsets;  // (local experts + 1) boundaries in the sorted rows
  int64_t rows() const { return offsets.back(); }
};

// Agreed plan of one dispatch and combine. In a planning run: one round of unknown content.
struct ExpertRoute {
  std::vector<ExpertRound> rounds;
  int64_t pairs = 0;   // rows of this rank: (token, expert) pairs
  int64_t remote = 0;  // those for another ep index
};

class TokenDispatcher {
 public:
  // The groups must outlive this object; nullptr: one rank. InputError if there are fewer experts
  // than ep ranks.
  TokenDispatcher(Communicator* ep, Communicator* etp, int64_t experts);

  int64_t experts() const { return experts_; }
  RowRange local_experts() const { return held_by(rank(ep_)); }
  // Rows that a rank may receive in one round: twice an even share, at most the worst case. tokens:
  // of this rank, the same on every rank of the plane. k: experts per token.
  int64_t default_bound(int64_t tokens, int64_t k) const;

  // Plans a dispatch. counts (E) int64: this rank's rows for each expert. bound: rows of this
  // rank's buffer, at least 1. Collective over the plane.
  ExpertRoute plan_dispatch(Ctx& ctx, const ConstTensor& counts, int64_t bound) const;

  // received (bound, C): rows of this round for the local experts, sorted by expert. rows (n, C):
  // this rank's rows, sorted by expert. Collective over the plane.
  void dispatch(Ctx& ctx, const Tensor& received, const ConstTensor& rows, const ExpertRoute& route,
                size_t round) const;
  // rows (n, C): overwrites the rows that this round sent with their results. results (bound, C):
  // results for the rows of dispatch(), a partial sum on each etp rank. Collective over the plane.
  void combine(Ctx& ctx, const Tensor& rows, const ConstTensor& results, const ExpertRoute& route,
               size_t round) const;

  // Both operations in halves. With `overlap`, rows are in transfer over ep between the halves
  // while the caller computes and may run other operations; the operands must not change meanwhile.
  // Without `overlap` the first half waits.
  struct InFlight {
    Activation arrived, packed;
    Tensor home;  // combine's rows in sending order
    Work work;
  };
  InFlight post_dispatch(Ctx& ctx, const Tensor& received, const ConstTensor& rows,
                         const ExpertRoute& route, size_t round, bool overlap) const;
  void finish_dispatch(Ctx& ctx, const Tensor& received, const InFlight& in_flight,
                       const ExpertRoute& route, size_t round) const;
  InFlight post_combine(Ctx& ctx, const Tensor& rows, const ConstTensor& results,
                        const ExpertRoute& route, size_t round, bool overlap) const;
  void finish_combine(Ctx& ctx, const Tensor& rows, const InFlight& in_flight,
                      const ExpertRoute& route, size_t round) const;

 private:
  static int size(const Communicator* group) { return group == nullptr ? 1 : group->size(); }
  static int rank(const Communicator* group) { return group == nullptr ? 0 : group->rank(); }
  bool alone() const { return size(ep_) == 1 && size(etp_) == 1; }  // rows stay where they are
  RowRange held_by(int ep_index) const;
  ExpertRound make_round(std::span<const int64_t> counts, std::span<const int64_t> bounds,
                         int64_t round) const;
  void gather_pieces(const Tensor& arrived, const ExpertRound& round) const;
  void sum_pieces(Ctx& ctx, const Tensor& arrived, const ExpertRound& round) const;
  Communicator* ep_;
  Communicator* etp_;
  int64_t experts_;
};

}  // namespace trireme
