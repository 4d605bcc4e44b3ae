#include "parallel/outer/compression_state.h"

#include <numeric>

#include "engine/ops/rows/elementwise.h"

namespace trireme {
namespace {

ShardMap map_of(const std::vector<CompressionState::Piece>& pieces) {
  std::vector<FlatRange> ranges;
  for (const CompressionState::Piece& piece : pieces)
    for (const CompressionState::Encoder& e : piece)
      if (!e.part.exact) ranges.push_back(e.part.range());
  return ShardMap(ranges);
}

}  // namespace

CompressionState::CompressionState(const Compressor& compressor,
                                   const std::vector<CompressedPart>& parts, DType dtype,
                                   GroupCoord rank, bool feedback, int64_t begin, Phases phases)
    : compressor_(compressor),
      dtype_(dtype),
      rank_(rank),
      feedback_(feedback),
      begin_(begin),
      end_(begin) {
  for (const CompressedPart& part : parts) {
    TRIREME_CHECK(part.offset >= end_ && part.rows >= 0 && part.columns >= 0, "a part at ",
                  part.offset, " of ", part.rows, " x ", part.columns,
                  " elements, expected at least ", end_);
    end_ = part.range().end;
  }
  const auto cuts = cut_parts(parts, rank.size, compressor);
  for (const std::vector<CompressedPart>& piece : cuts) {
    int64_t bytes = 0;
    for (const CompressedPart& part : piece)
      bytes += this->compressor(part).wire_bytes(dtype, part.rows, part.columns);
    piece_bytes_.push_back(bytes);
    if (phases != kSecondPhase) pieces_.push_back(encoders_of(piece, false));
  }
  const auto own = static_cast<size_t>(rank.index);
  if (phases != kFirstPhase) own_ = encoders_of(cuts[own], true);
  own_bytes_.assign(cuts.size(), piece_bytes_[own]);
}

CompressionState::Piece CompressionState::encoders_of(const std::vector<CompressedPart>& piece,
                                                      bool of_sum) {
  int64_t& residuals = of_sum ? sum_residuals_ : residuals_;
  Piece encoders;
  for (const CompressedPart& part : piece) {
    const Compressor& its = compressor(part);
    const Shape state = its.state_shape(part.rows, part.columns);
    encoders.push_back({.part = part,
                        .residual_begin = residuals,
                        .state_begin = states_,
                        .state_shape = state,
                        .wire_bytes = its.wire_bytes(dtype_, part.rows, part.columns),
                        .of_sum = of_sum});
    if (!part.exact) residuals += part.elements();
    states_ += state.numel();
  }
  return encoders;
}

const Compressor& CompressionState::compressor(const CompressedPart& part) const {
  return compressor_of(part, compressor_);
}

int64_t CompressionState::all_bytes() const {
  return std::accumulate(piece_bytes_.begin(), piece_bytes_.end(), int64_t{0});
}

int64_t CompressionState::sent_bytes() const {
  return all_bytes() - own_bytes_.front() + (rank_.size - 1) * own_bytes_.front();
}

int64_t CompressionState::elements(Array array) const {
  switch (array) {
    case kResidual: return feedback_ ? residuals_ : 0;
    case kSumResidual: return feedback_ ? sum_residuals_ : 0;
    case kState: return states_;
    case kPiecesWire: return pieces_.empty() ? 0 : all_bytes();
    case kOwnWires: return own_.empty() ? 0 : own_bytes_.front() * rank_.size;
    case kArrays: break;
  }
  TRIREME_UNREACHABLE("array of a compression state");
}

DType CompressionState::dtype_of(Array array) const {
  return array == kPiecesWire || array == kOwnWires ? DType::kU8 : dtype_;
}

int64_t CompressionState::bytes() const {
  int64_t total = 0;
  for (int a = 0; a < kArrays; ++a) {
    const auto array = static_cast<Array>(a);
    total += elements(array) * dtype_size(dtype_of(array));
  }
  return total;
}

void CompressionState::allocate(Ctx& ctx) {
  TRIREME_CHECK(!ctx.planning(), "memory of compression is allocated in a planning run");
  for (int a = 0; a < kArrays; ++a) {
    const auto array = static_cast<Array>(a);
    buffers_[static_cast<size_t>(a)] =
        Buffer("compressed gradients", elements(array) * dtype_size(dtype_of(array)), ctx.memory());
    if (elements(array) > 0) fill_zero(ctx, view(array));
  }
  for (const Piece& piece : pieces_) initialize(ctx, piece);
  initialize(ctx, own_);
}

void CompressionState::initialize(Ctx& ctx, const Piece& piece) {
  for (const Encoder& e : piece) compressor(e.part).initialize_state(ctx, state_of(e), e.part.key);
}

Tensor CompressionState::view(Array array) const {
  const Buffer& buffer = buffers_[static_cast<size_t>(array)];
  const Shape shape{elements(array)};
  if (buffer.data() == nullptr) return {nullptr, dtype_of(array), shape, buffer.device()};
  return buffer.tensor(dtype_of(array), shape);
}

ShardMap CompressionState::residual_map() const { return map_of(pieces_); }
ShardMap CompressionState::sum_residual_map() const { return map_of({own_}); }

Tensor CompressionState::residual_of(const Encoder& e) const {
  if (!feedback_ || e.part.exact) return {};
  return view(e.of_sum ? kSumResidual : kResidual)
      .slice(0, e.residual_begin, e.residual_begin + e.part.elements())
      .reshape({e.part.rows, e.part.columns});
}

Tensor CompressionState::state_of(const Encoder& e) const {
  return view(kState)
      .slice(0, e.state_begin, e.state_begin + e.state_shape.numel())
      .reshape(e.state_shape);
}

}  // namespace trireme
