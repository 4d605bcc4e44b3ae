// Memory of a compressed all-reduce on one rank: residuals, states of the compressor, and wires.
#pragma once

#include "engine/core/memory.h"
#include "parallel/outer/compressed_parts.h"

namespace trireme {

class CompressionState {
 public:
  // Encoding of one part: its residual, its state and its code, as ranges of those of all parts.
  struct Encoder {
    CompressedPart part;
    int64_t residual_begin = 0, state_begin = 0;
    Shape state_shape;
    int64_t wire_bytes = 0;
    bool of_sum = false;  // phase 2
  };
  using Piece = std::vector<Encoder>;
  // Phases of the all-reduce that this rank encodes in: a site that sends to a hub has no second
  // phase, and the hub no first.
  enum Phases : uint8_t { kBothPhases, kFirstPhase, kSecondPhase };

  // Determines sizes only. parts: in ascending order of their offsets, without overlap, the same on
  // all ranks of the group. dtype: float32 or float64. rank: this rank's index in the group.
  // feedback: keeps residuals. begin: flat element that is the first of the exchanged data. The
  // compressor must outlive this object.
  CompressionState(const Compressor& compressor, const std::vector<CompressedPart>& parts,
                   DType dtype, GroupCoord rank, bool feedback, int64_t begin = 0,
                   Phases phases = kBothPhases);

  int64_t bytes() const;
  // Allocates the memory: residuals of zero, initial states. Not in a planning run.
  void allocate(Ctx& ctx);

  const Compressor& compressor(const CompressedPart& part) const;
  DType dtype() const { return dtype_; }
  const GroupCoord& rank() const { return rank_; }
  // Flat range of the exchanged data, up to the end of the last part.
  FlatRange data_range() const { return {begin_, end_}; }
  // Phase 1: encodings of all parts, by receiving rank. Phase 2: those of this rank's piece. Empty
  // for a phase that it has no part in.
  const std::vector<Piece>& pieces() const { return pieces_; }
  const Piece& own_piece() const { return own_; }

  // Elements that this rank has not sent yet, of the compressed parts (phase 1) and of its piece of
  // the sums (phase 2), in their order. Absent without feedback. The maps give their places in the
  // flat range.
  Tensor residual() const { return feedback_ ? view(kResidual) : Tensor(); }
  Tensor sum_residual() const { return feedback_ ? view(kSumResidual) : Tensor(); }
  ShardMap residual_map() const;
  ShardMap sum_residual_map() const;
  Tensor residual_of(const Encoder& e) const;  // (rows, columns); absent: none
  Tensor state_of(const Encoder& e) const;     // {0}: none

  // Bytes of the codes, by rank: of each rank's piece, and of this rank's once for each rank.
  const std::vector<int64_t>& piece_bytes() const { return piece_bytes_; }
  const std::vector<int64_t>& own_bytes() const { return own_bytes_; }
  // Codes of all pieces; one code of this rank's piece for each rank.
  Tensor pieces_wire() const { return view(kPiecesWire); }
  Tensor own_wires() const { return view(kOwnWires); }
  int64_t sent_bytes() const;  // by one all-reduce (parallel/outer/compressed_all_reduce.h)

 private:
  enum Array : uint8_t { kResidual, kSumResidual, kState, kPiecesWire, kOwnWires, kArrays };
  Piece encoders_of(const std::vector<CompressedPart>& piece, bool of_sum);
  void initialize(Ctx& ctx, const Piece& piece);
  int64_t all_bytes() const;
  int64_t elements(Array array) const;
  DType dtype_of(Array array) const;
  Tensor view(Array array) const;

  const Compressor& compressor_;
  DType dtype_;
  GroupCoord rank_;
  bool feedback_;
  int64_t begin_, end_;
  std::vector<Piece> pieces_;
  Piece own_;
  int64_t residuals_ = 0, sum_residuals_ = 0, states_ = 0;  // elements
  std::vector<int64_t> piece_bytes_, own_bytes_;
  std::array<Buffer, kArrays> buffers_;
};

}  // namespace trireme
