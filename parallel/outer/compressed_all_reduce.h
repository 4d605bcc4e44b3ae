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

#include "parallel/comm/communicator.h"
#include "parallel/outer/compression_state.h"

namespace trireme {

class CompressedAllReduce {
 public:
  // state: of this rank of the group. All arguments must outlive this object.
  CompressedAllReduce(Communicator& group, CompressionState& state, Ctx& ctx);
  ~CompressedAllReduce();  // waits for the exchange of start()
  CompressedAllReduce(const CompressedAllReduce&) = delete;
  CompressedAllReduce& operator=(const CompressedAllReduce&) = delete;

  // Encodes the parts of `data` (n), finite and contiguous, whose first element is the first of the
  // state's data_range(), and starts to send them. data may be changed afterwards. round: larger
  // than in the calls before. In a planning run this and finish() only plan their scratch, and the
  // state need not be allocated.
  void start(const ConstTensor& data, int64_t round);
  // Phase 2 of start(), without waiting for its exchange. data: scratch until finish(), the same
  // tensor as there. Collective; waits for phase 1, unless arrived() says that it is complete.
  void proceed(const Tensor& data);
  bool arrived() const { return work_.done(); }
  // Completes start(): every part of data = the sum. Collective; waits, which is added to
  // TimeCategory::kCommunication of the context's profile.
  void finish(const Tensor& data);
  // Time that the last finish() waited.
  double waiting_seconds() const { return waiting_seconds_; }

 private:
  void check(const ConstTensor& data) const;
  template <class AnyTensor>
  AnyTensor part_of(const AnyTensor& data, const CompressedPart& part) const;
  template <class Wait>
  void timed(const Wait& wait);
  void encode(const CompressionState::Piece& piece, const Tensor& wire, const ConstTensor& data);
  void decode(const CompressionState::Piece& piece, const ConstTensor& wire, const Tensor& data,
              bool add);

  Communicator& group_;
  CompressionState& state_;
  Ctx& ctx_;
  int64_t round_ = -1;
  bool started_ = false, proceeded_ = false;
  double waiting_seconds_ = 0;
  Work work_;
};

}  // namespace trireme
