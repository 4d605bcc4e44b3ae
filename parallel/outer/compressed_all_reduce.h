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

#include <vector>

#include "parallel/comm/communicator.h"
#include "parallel/outer/compressors/compressor.h"

namespace trireme {

// Matrix in a flat range, row after row, or a part of one.
struct CompressedPart {
  int64_t offset = 0;  // of its first element in the flat range
  int64_t rows = 0, columns = 0;
  EncodingKey key = {};  // its round is that of the all-reduce
  int64_t elements() const { return rows * columns; }
};

// Cuts parts into `pieces` consecutive pieces of about as many elements. A part is cut between
// rows, one of a single row between blocks, and not at all if the compressor cannot divide it.
std::vector<std::vector<CompressedPart>> cut_parts(const std::vector<CompressedPart>& parts,
                                                   int pieces, const Compressor& compressor);

class CompressedAllReduce {
 public:
  // parts: in ascending order of their offsets, without overlap, the same on all ranks. dtype:
  // float32 or float64. All arguments must outlive this object. feedback: keeps residuals, as many
  // elements as the parts have in phase 1 and as this rank's piece has in phase 2. Not in a
  // planning run.
  CompressedAllReduce(Communicator& group, const Compressor& compressor, Ctx& ctx,
                      const std::vector<CompressedPart>& parts, DType dtype, bool feedback);
  ~CompressedAllReduce();  // waits for the exchange of start()
  CompressedAllReduce(const CompressedAllReduce&) = delete;
  CompressedAllReduce& operator=(const CompressedAllReduce&) = delete;

  // Encodes the parts of `data` (n), finite and contiguous, and starts to send them. data may be
  // changed afterwards. round: larger than in the calls before. In a planning run this and finish()
  // only plan their scratch.
  void start(const ConstTensor& data, int64_t round);
  // Completes start(): every part of data = the sum. Collective; waits.
  void finish(const Tensor& data);

  // Elements that this rank has not sent: of `parts`, in their order; of its piece of the sums.
  // Absent without feedback.
  const Tensor& residual() const { return residual_.tensor; }
  const Tensor& sum_residual() const { return sum_residual_.tensor; }
  const std::vector<CompressedPart>& own_piece() const;
  int64_t sent_bytes() const;  // by one all-reduce, as above

 private:
  struct Memory {
    Buffer buffer;
    Tensor tensor;
  };
  // Encoding of one part: its residual and its state, as ranges of those of all parts.
  struct Encoder {
    CompressedPart part;
    int64_t residual_begin = 0, state_begin = 0;
    Shape state_shape;
    int64_t wire_bytes = 0;
  };
  using Piece = std::vector<Encoder>;
  Memory zeros(DType dtype, int64_t elements);
  Piece encoders_of(const std::vector<CompressedPart>& piece, int64_t& residuals);
  void initialize(const Piece& piece);
  Tensor state_of(const Encoder& e) const;
  void check(const char* what, const ConstTensor& data) const;
  void encode(const Piece& piece, const Tensor& wire, const ConstTensor& data,
              const Tensor& residual);
  void decode(const Piece& piece, const ConstTensor& wire, const Tensor& data, bool add);
  int64_t all_bytes() const;

  Communicator& group_;
  const Compressor& compressor_;
  Ctx& ctx_;
  DType dtype_;
  int64_t end_ = 0;                                  // of the last part
  std::vector<std::vector<CompressedPart>> pieces_;  // by rank
  std::vector<Piece> out_;                           // phase 1, by receiving rank
  Piece sum_;                                        // phase 2: the own piece
  int64_t states_ = 0;                               // elements of all states
  Memory residual_, sum_residual_, state_;
  // Wires: all pieces of one rank, and the own piece once for each rank. Phase 1 sends the first
  // and receives the second, phase 2 the reverse.
  Memory pieces_wire_, own_wires_;
  std::vector<int64_t> piece_bytes_, own_bytes_;  // of these wires, by rank
  int64_t round_ = -1;
  bool started_ = false;
  Work work_;
};

}  // namespace trireme
