#include "parallel/outer/compressed_all_reduce.h"

#include <algorithm>
#include <numeric>

#include "engine/ops/rows/elementwise.h"
#include "engine/ops/rows/transfer.h"

namespace trireme {
namespace {

int64_t elements_of(const std::vector<CompressedPart>& parts) {
  int64_t total = 0;
  for (const CompressedPart& part : parts) total += part.elements();
  return total;
}

// Smallest units of a part that may be in different pieces: rows, or blocks of a single row.
struct Units {
  int64_t count = 0, width = 0;  // width: columns, or columns of all blocks but the last
  bool rows = false;
};
Units units_of(const CompressedPart& part, const Compressor& compressor) {
  if (part.elements() == 0) return {};
  if (!compressor.can_divide()) return {1, part.elements(), true};
  if (part.rows > 1) return {part.rows, part.columns, true};
  return {ceil_div(part.columns, compressor.block()), compressor.block(), false};
}

// Units [first, end) of a part.
CompressedPart cut(const CompressedPart& part, const Units& units, int64_t first, int64_t end,
                   int64_t block) {
  if (end - first == units.count) return part;
  CompressedPart piece = part;
  piece.offset += first * units.width;
  if (units.rows) {
    const int64_t stride =
        part.key.block_stride != 0 ? part.key.block_stride : ceil_div(part.columns, block);
    piece.rows = end - first;
    piece.key.first_block += first * stride;
    piece.key.block_stride = stride;
  } else {
    piece.columns = std::min(end * units.width, part.columns) - first * units.width;
    piece.key.first_block += first;
  }
  return piece;
}

}  // namespace

std::vector<std::vector<CompressedPart>> cut_parts(const std::vector<CompressedPart>& parts,
                                                   int pieces, const Compressor& compressor) {
  std::vector<std::vector<CompressedPart>> cuts(static_cast<size_t>(pieces));
  const int64_t total = elements_of(parts);
  int64_t before = 0;  // elements of earlier parts
  for (const CompressedPart& part : parts) {
    const Units units = units_of(part, compressor);
    // A unit belongs to the piece that its first element would be in if elements were cut evenly.
    const auto piece_of_unit = [&](int64_t unit) {
      return static_cast<size_t>((before + unit * units.width) * pieces / total);
    };
    for (int64_t first = 0; first < units.count;) {
      const size_t piece = piece_of_unit(first);
      int64_t end = first + 1;
      while (end < units.count && piece_of_unit(end) == piece) ++end;
      cuts[piece].push_back(cut(part, units, first, end, compressor.block()));
      first = end;
    }
    before += part.elements();
  }
  return cuts;
}

CompressedAllReduce::Memory CompressedAllReduce::zeros(DType dtype, int64_t elements) {
  if (elements == 0) return {{}, Tensor(nullptr, dtype, {0}, ctx_.device())};
  Memory memory;
  memory.buffer = Buffer("compressed all-reduce", elements * dtype_size(dtype), ctx_.memory());
  memory.tensor = memory.buffer.tensor(dtype, {elements});
  fill_zero(ctx_, memory.tensor);
  return memory;
}

CompressedAllReduce::CompressedAllReduce(Communicator& group, const Compressor& compressor,
                                         Ctx& ctx, const std::vector<CompressedPart>& parts,
                                         DType dtype, bool feedback)
    : group_(group), compressor_(compressor), ctx_(ctx), dtype_(dtype) {
  TRIREME_CHECK(!ctx.planning(), "a compressed all-reduce is created in a planning run");
  for (const CompressedPart& part : parts) {
    TRIREME_CHECK(part.offset >= end_ && part.rows >= 0 && part.columns >= 0, "a part at ",
                  part.offset, " of ", part.rows, " x ", part.columns,
                  " elements, expected at least ", end_);
    end_ = part.offset + part.elements();
  }
  pieces_ = cut_parts(parts, group.size(), compressor);
  const auto own = static_cast<size_t>(group.rank());
  int64_t residuals = 0, sum_residuals = 0;
  for (const std::vector<CompressedPart>& piece : pieces_) {
    out_.push_back(encoders_of(piece, residuals));
    int64_t bytes = 0;
    for (const Encoder& e : out_.back()) bytes += e.wire_bytes;
    piece_bytes_.push_back(bytes);
  }
  sum_ = encoders_of(pieces_[own], sum_residuals);
  own_bytes_.assign(pieces_.size(), piece_bytes_[own]);
  state_ = zeros(dtype, states_);
  for (const Piece& piece : out_) initialize(piece);
  initialize(sum_);
  if (feedback) {
    residual_ = zeros(dtype, residuals);
    sum_residual_ = zeros(dtype, sum_residuals);
  }
  pieces_wire_ = zeros(DType::kU8, all_bytes());
  own_wires_ = zeros(DType::kU8, own_bytes_.front() * group.size());
}

CompressedAllReduce::~CompressedAllReduce() {
  try {
    work_.wait();
  } catch (...) {  // NOLINT: this object has been given up, and the group knows of a lost rank
  }
}

CompressedAllReduce::Piece CompressedAllReduce::encoders_of(
    const std::vector<CompressedPart>& piece, int64_t& residuals) {
  Piece encoders;
  for (const CompressedPart& part : piece) {
    const Shape state = compressor_.state_shape(part.rows, part.columns);
    encoders.push_back({.part = part,
                        .residual_begin = residuals,
                        .state_begin = states_,
                        .state_shape = state,
                        .wire_bytes = compressor_.wire_bytes(dtype_, part.rows, part.columns)});
    residuals += part.elements();
    states_ += state.numel();
  }
  return encoders;
}

Tensor CompressedAllReduce::state_of(const Encoder& e) const {
  return state_.tensor.slice(0, e.state_begin, e.state_begin + e.state_shape.numel())
      .reshape(e.state_shape);
}

void CompressedAllReduce::initialize(const Piece& piece) {
  for (const Encoder& e : piece) compressor_.initialize_state(ctx_, state_of(e), e.part.key);
}

int64_t CompressedAllReduce::all_bytes() const {
  return std::accumulate(piece_bytes_.begin(), piece_bytes_.end(), int64_t{0});
}

int64_t CompressedAllReduce::sent_bytes() const {
  return all_bytes() - own_bytes_.front() + (group_.size() - 1) * own_bytes_.front();
}

const std::vector<CompressedPart>& CompressedAllReduce::own_piece() const {
  return pieces_[static_cast<size_t>(group_.rank())];
}

void CompressedAllReduce::encode(const Piece& piece, const Tensor& wire, const ConstTensor& data,
                                 const Tensor& residual) {
  int64_t begin = 0;
  for (const Encoder& e : piece) {
    const Shape shape{e.part.rows, e.part.columns};
    const int64_t elements = e.part.elements();
    const ConstTensor x = data.slice(0, e.part.offset, e.part.offset + elements).reshape(shape);
    Tensor left;
    if (residual.present())
      left = residual.slice(0, e.residual_begin, e.residual_begin + elements).reshape(shape);
    EncodingKey key = e.part.key;
    key.round = round_;
    compressor_.encode(ctx_, wire.slice(0, begin, begin + e.wire_bytes), x, left, state_of(e), key);
    begin += e.wire_bytes;
  }
}

void CompressedAllReduce::decode(const Piece& piece, const ConstTensor& wire, const Tensor& data,
                                 bool add) {
  int64_t begin = 0;
  for (const Encoder& e : piece) {
    const Tensor y = data.slice(0, e.part.offset, e.part.offset + e.part.elements())
                         .reshape({e.part.rows, e.part.columns});
    EncodingKey key = e.part.key;
    key.round = round_;
    compressor_.decode(ctx_, y, wire.slice(0, begin, begin + e.wire_bytes), key, add);
    begin += e.wire_bytes;
  }
}

void CompressedAllReduce::check(const char* what, const ConstTensor& data) const {
  check_operand(what, "data", data, dtype_, {data.numel()});
  TRIREME_CHECK(data.numel() >= end_, what, ": data has ", data.numel(),
                " elements, expected at least ", end_);
}

void CompressedAllReduce::start(const ConstTensor& data, int64_t round) {
  check("compressed all-reduce", data);
  TRIREME_CHECK(
      !started_ && round > round_, "compressed all-reduce: round ", round,
      started_ ? " starts before the last one has finished" : " is not larger than the last one");
  if (!ctx_.planning()) round_ = round;
  started_ = true;
  int64_t begin = 0;
  for (size_t r = 0; r < out_.size(); begin += piece_bytes_[r], ++r)
    encode(out_[r], pieces_wire_.tensor.slice(0, begin, begin + piece_bytes_[r]), data,
           residual_.tensor);
  if (!ctx_.planning())
    work_ =
        group_.all_to_all_v_async(own_wires_.tensor, own_bytes_, pieces_wire_.tensor, piece_bytes_);
}

void CompressedAllReduce::finish(const Tensor& data) {
  check("compressed all-reduce", data);
  TRIREME_CHECK(started_, "compressed all-reduce: finish() without start()");
  started_ = false;
  work_.wait();
  const int64_t bytes = own_bytes_.front();
  const auto own_wire = [&](int r) {
    return own_wires_.tensor.slice(0, r * bytes, (r + 1) * bytes);
  };
  for (int r = 0; r < group_.size(); ++r)
    decode(out_[static_cast<size_t>(group_.rank())], own_wire(r), data, r > 0);
  encode(sum_, own_wire(0), data, sum_residual_.tensor);
  for (int r = 1; r < group_.size(); ++r) transfer(ctx_, own_wire(r), own_wire(0));
  if (!ctx_.planning())
    group_.all_to_all_v(pieces_wire_.tensor, piece_bytes_, own_wires_.tensor, own_bytes_);
  int64_t begin = 0;
  for (size_t r = 0; r < out_.size(); begin += piece_bytes_[r], ++r)
    decode(out_[r], pieces_wire_.tensor.slice(0, begin, begin + piece_bytes_[r]), data, false);
}

}  // namespace trireme
