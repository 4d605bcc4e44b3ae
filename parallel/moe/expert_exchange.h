// Expert exchange: rows travel to the ranks that hold their experts, and back.
//
// Ranks form a plane of ep x etp. Expert e lives on ep index i with e in piece_of(E, ep, i); the
// etp ranks of that index hold slices of its weights. Every rank brings different rows, sorted by
// expert.
//
//   dispatch   all_to_all_v over ep: a row goes to its expert's ep index (same etp index); then every
//              etp rank passes what it got to its etp peers, so that all of them have all rows
//   combine    the mirror: partial results are summed over etp, each rank getting the sum for the
//              rows it had brought to the plane; all_to_all_v over ep takes them home
//
// Sent over ep, of rows of w bytes: exactly w times the pairs whose expert is on another ep index,
// in either direction. Over etp: w times the rows received, times (etp - 1), in either direction.
//
// No collective depends on the routing: counts travel by two all_gathers of a fixed size, and every
// rank takes part in every round, with nothing to send if need be.
//
// Rounds: a rank's buffer holds `bound` rows. The rows for an ep index are numbered by (expert, etp
// index of the source, its ep index, place there); round r moves numbers [r bound, (r + 1) bound).
// Every rank knows all counts, so all know the number of rounds: the most that any ep index needs.
#pragma once

#include <span>

#include "engine/ops/context.h"
#include "parallel/comm/communicator.h"

namespace trireme {

struct RowRange {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
};

// Where the rows of one round come from and go to, on this rank.
struct ExpertRound {
  std::vector<int64_t> send_rows;     // (ep) rows for each ep index, in the order of `sent`
  std::vector<RowRange> sent;         // of this rank's rows: what the round takes, in sending order
  std::vector<int64_t> receive_rows;  // (ep) rows from each ep index
  std::vector<int64_t> piece_rows;    // (etp) rows each etp index receives over ep
  struct Move {
    int64_t from = 0;  // in the order of arrival: (etp index, ep index, expert)
    int64_t to = 0;    // sorted by expert
    int64_t rows = 0;
  };
  std::vector<Move> moves;
  std::vector<int64_t> offsets;  // (local experts + 1) ranges of the sorted rows
  int64_t rows() const { return offsets.back(); }
};

// The agreed course of one exchange. In a planning run: one round of unknown content.
struct ExpertRoute {
  std::vector<ExpertRound> rounds;
  int64_t pairs = 0;   // rows this rank brings
  int64_t remote = 0;  // of them to another ep index
};

class ExpertExchange {
 public:
  // The groups must outlive this object; nullptr: one rank. InputError when there are fewer experts
  // than ep ranks.
  ExpertExchange(Communicator* ep, Communicator* etp, int64_t experts);

  int64_t experts() const { return experts_; }
  RowRange local_experts() const { return held_by(rank(ep_)); }
  // Rows that a rank may receive in one round: twice an even share, never more than the worst case.
  // tokens: of this rank; every rank of the plane gives the same.
  int64_t default_bound(int64_t tokens, int64_t k) const;

  // counts (E) int64: rows of each expert that this rank brings. Collective over the plane.
  ExpertRoute agree(Ctx& ctx, const ConstTensor& counts, int64_t bound) const;

  // received (bound, C): the rows of this round's local experts, sorted by expert.
  // rows (n, C): what this rank brings, sorted by expert. Collective over the plane.
  void dispatch(Ctx& ctx, const Tensor& received, const ConstTensor& rows, const ExpertRoute& route,
                size_t round) const;
  // rows (n, C): the places that this round had taken from it get the results for them. results
  // (bound, C): of dispatch's rows; a partial sum on each etp rank. Collective over the plane.
  void combine(Ctx& ctx, const Tensor& rows, const ConstTensor& results, const ExpertRoute& route,
               size_t round) const;

  // The two in halves. Between them, with `overlap`, rows travel over ep while something else is
  // computed, which may make operations of its own; the operands must not change meanwhile.
  // Without, the first half waits.
  struct Travelling {
    Activation arrived, packed;
    Tensor home;  // combine's rows in the order of sending
    Work work;
  };
  Travelling post_dispatch(Ctx& ctx, const Tensor& received, const ConstTensor& rows,
                           const ExpertRoute& route, size_t round, bool overlap) const;
  void finish_dispatch(Ctx& ctx, const Tensor& received, const Travelling& travelling,
                       const ExpertRoute& route, size_t round) const;
  Travelling post_combine(Ctx& ctx, const Tensor& rows, const ConstTensor& results,
                          const ExpertRoute& route, size_t round, bool overlap) const;
  void finish_combine(Ctx& ctx, const Tensor& rows, const Travelling& travelling,
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
