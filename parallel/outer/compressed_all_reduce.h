// Compressed all-reduce: the sum over the ranks of a group of matrices that the ranks send
// compressed, in two phases with error feedback in both (Tang et al. 2021, "1-bit Adam").
//
//   1  Each rank cuts the matrices into one piece per rank, encodes the pieces, and sends piece r
//      to rank r, which decodes them and adds them in the order of the ranks.
//   2  Rank r encodes its piece of the sum and sends it to all; every rank decodes all pieces.
// All ranks get the same result, as far as Compressor::decode() gives the same bits. The sum of all
// results and of the residuals of both phases of all ranks is the sum of all inputs, up to
// rounding. Pieces consist of whole blocks of the compressor (whole matrices if it cannot divide
// one), so the result does not depend on where the matrices are cut.
//
// Bytes that rank i of N sends, with wire(r) the encoded size of piece r:
//   sum over r != i of wire(r)  +  (N - 1) wire(i)
#pragma once

#include <functional>

#include "parallel/comm/communicator.h"
#include "parallel/outer/compression_state.h"

namespace trireme {

// Data whose sum of squares is not below this is not encoded. Norms are below 1e15 then, so that
// sums over ranks, residuals and PowerSGD's product of a matrix and the factor of an earlier one
// stay finite in float32 (up to 3.4e38).
inline constexpr double kMaxEncodedSquares = 1e30;

class CompressedAllReduce {
 public:
  // Messages of the exchange: operations in the order of all others of the rank (a collective), or
  // posted ones, which are transferred while the rank computes and runs other operations. Posted
  // messages of GPU tensors need open paths between all ranks of the group.
  enum Messages : uint8_t { kInOrder, kPosted };

  // state: of this rank of the group. All arguments must outlive this object.
  CompressedAllReduce(Communicator& group, CompressionState& state, Ctx& ctx,
                      Messages messages = kInOrder);
  ~CompressedAllReduce();  // waits for the exchange of start()
  CompressedAllReduce(const CompressedAllReduce&) = delete;
  CompressedAllReduce& operator=(const CompressedAllReduce&) = delete;

  // Encodes the parts of `data` (n), contiguous and with a sum of squares below
  // kMaxEncodedSquares, whose first element is the first of the state's data_range(), and starts to
  // send them. data may be changed afterwards. round: larger than in the calls before. In a
  // planning run this and finish() only plan their scratch, and the state need not be allocated.
  void start(const ConstTensor& data, int64_t round);
  // Waits for phase 1 and starts phase 2; nothing if that has started. data: scratch until
  // finish(), the same tensor as there. combine: sets this rank's piece of `data` in place of the
  // sum of the codes. Collective.
  void start_second_phase(const Tensor& data, const std::function<void()>& combine = {});
  // Waits for phase 1, of which code() is the code of this rank's piece from a rank until phase 2.
  void finish_first_phase() { wait(); }
  ConstTensor code(int rank) const { return own_wire(rank); }
  // Completes start(): every part of data = the sum. Collective; waits, which is added to
  // TimeCategory::kCommunication of the context's profile, as in start_second_phase().
  void finish(const Tensor& data);
  // Time waited since the last start().
  double waiting_seconds() const { return waiting_seconds_; }

 private:
  void check(const ConstTensor& data) const;
  void exchange(const Tensor& out, std::span<const int64_t> out_bytes, const ConstTensor& in,
                std::span<const int64_t> in_bytes);
  Tensor own_wire(int rank) const;
  void sum_codes(const Tensor& data);
  void wait();

  Communicator& group_;
  CompressionState& state_;
  Ctx& ctx_;
  Messages messages_;
  int64_t round_ = -1;
  bool started_ = false, in_second_phase_ = false;
  double waiting_seconds_ = 0;
  std::vector<Work> work_;
};

}  // namespace trireme
