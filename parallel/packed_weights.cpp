#include "parallel/packed_weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <span>

#include "engine/core/error.h"
#include "engine/ops/rows/transfer.h"

namespace trireme {
namespace {

constexpr int64_t kPartAlignment = 64;             // bytes
constexpr int64_t kPackedPieceElements = 1 << 22;  // read at a time

std::vector<int64_t> packed_dims_of(const Shape& shape) {
  return {shape.dims().begin(), shape.dims().end()};
}

// Quantizes a box of a weight to codes (N, K / 2) and scales (N, B).
void quantize_box(Ctx& host, const ParameterStore::ReadBox& read, const TensorBox& box,
                  const Tensor& codes, const Tensor& scale) {
  const int64_t rows = box.extent[0], columns = box.extent[1];
  const int64_t at_once = std::clamp(kPackedPieceElements / std::max<int64_t>(columns, 1),
                                     int64_t{1}, std::max<int64_t>(rows, 1));
  const Buffer piece("weights to pack", at_once * columns * dtype_size(DType::kF32));
  for (int64_t row = 0; row < rows; row += at_once) {
    const int64_t end = std::min(rows, row + at_once), n = end - row;
    const Tensor w = piece.tensor(DType::kF32, {n, columns});
    read(box, row * columns, w.reshape({n * columns}));
    const std::span<const float> values(w.as<float>(), static_cast<size_t>(n * columns));
    if (!std::ranges::all_of(values, [](float x) { return std::isfinite(x); }))
      fail_input("a weight to be packed into 4 bits has elements that are not finite");
    quantize_nf4(host, codes.slice(0, row, end), scale.slice(0, row, end), w);
  }
}

}  // namespace

PackedWeights::PackedWeights(const std::vector<ParameterSpec>& specs, bool double_quantization)
    : double_(double_quantization), packed_(specs.size()) {
  for (size_t h = 0; h < specs.size(); ++h) {
    if (!specs[h].packed) continue;
    Nf4Parameter& parameter = packed_[h] = packed_parameter(specs[h]);
    parameter.begin = bytes_;
    bytes_ = checked_add(bytes_, parameter.bytes);
  }
}

PackedWeights::Nf4Parameter PackedWeights::packed_parameter(const ParameterSpec& spec) const {
  TRIREME_CHECK(spec.shape.rank() == 2, spec.name, " of shape ", spec.shape, " cannot be packed");
  Nf4Parameter parameter{spec.box.extent.empty() ? whole_box(packed_dims_of(spec.shape)) : spec.box,
                         spec.shape};
  const int64_t first = parameter.box.start[1], end = first + parameter.columns(),
                all = spec.shape[1];
  if (parameter.columns() % 2 != 0)
    fail_input(spec.name, ": its ", parameter.columns(),
               " inputs are an odd number, and a byte holds two 4-bit codes; set "
               "finetune.quantization to \"none\"");
  if (first % kNf4Block != 0 || (end % kNf4Block != 0 && end != all))
    fail_input(spec.name, ": ", parameter.columns(), " of its ", all,
               " inputs on a rank are not whole blocks of ", kNf4Block,
               ", each with one scale; lower parallel.tensor_model_parallel_size, or set "
               "finetune.quantization to \"none\"");
  int64_t bytes = 0;
  const auto take = [&bytes](int64_t size) {
    const int64_t at = bytes;
    bytes = round_up(checked_add(bytes, size), kPartAlignment);
    return at;
  };
  take(checked_mul(parameter.rows(), parameter.columns()) / 2);
  parameter.scale =
      take(parameter.rows() * parameter.blocks() * (double_ ? 1 : dtype_size(DType::kF32)));
  if (double_) {
    parameter.groups = take(parameter.scale_groups() * dtype_size(DType::kF32));
    parameter.offset = take(dtype_size(DType::kF32));
  }
  parameter.bytes = bytes;
  return parameter;
}

void PackedWeights::allocate(Ctx& ctx) {
  block_ = Buffer("parameters in 4 bits", bytes_, ctx.memory());
}

// Before allocate() (a planning run) the part has a shape but no memory.
Tensor PackedWeights::part(const Buffer& block, int64_t at, DType dtype, const Shape& shape) const {
  if (block.data() == nullptr) return Tensor(nullptr, dtype, shape);
  return block.tensor(dtype, shape, at);
}

// Quantizes the scales of the whole weight and stores the box's in `packed`.
void PackedWeights::pack_scales(const Nf4Parameter& parameter, const Tensor& scale,
                                const Buffer& packed) const {
  const int64_t n = scale.numel(), stride = parameter.whole_blocks();
  const Buffer all("codes of scales", n);
  const Tensor codes = all.tensor(DType::kU8, {n});
  quantize_nf4_scales(codes,
                      part(packed, parameter.groups, DType::kF32, {parameter.scale_groups()}),
                      part(packed, parameter.offset, DType::kF32, {1}), scale.reshape({n}));
  const int64_t first = parameter.box.start[0] * stride + parameter.box.start[1] / kNf4Block;
  auto* const mine =
      part(packed, parameter.scale, DType::kU8, {parameter.rows(), parameter.blocks()})
          .as<uint8_t>();
  for (int64_t row = 0; row < parameter.rows(); ++row)
    std::memcpy(mine + row * parameter.blocks(), codes.as<uint8_t>() + first + row * stride,
                static_cast<size_t>(parameter.blocks()));
}

void PackedWeights::pack(Ctx& ctx, ParamHandle h, const ParameterStore::ReadBox& read) {
  const Nf4Parameter& parameter = packed_[static_cast<size_t>(h)];
  TRIREME_CHECK(parameter.bytes > 0, "parameter ", h, " is not packed");
  std::unique_ptr<Ctx> on_host;
  if (ctx.gpu != nullptr) on_host = std::make_unique<Ctx>(ctx.threads, "packing");
  Ctx& host = on_host != nullptr ? *on_host : ctx;
  const Buffer packed("packed weight", parameter.bytes);
  const Tensor codes = part(packed, 0, DType::kU8, {parameter.rows(), parameter.columns() / 2});
  const Shape blocks{parameter.rows(), parameter.blocks()};
  if (!double_) {
    quantize_box(host, read, parameter.box, codes,
                 part(packed, parameter.scale, DType::kF32, blocks));
  } else {
    const TensorBox whole = whole_box(packed_dims_of(parameter.whole));
    const Shape all_blocks{parameter.whole[0], parameter.whole_blocks()};
    const Buffer scales("scales", all_blocks.numel() * dtype_size(DType::kF32));
    const Tensor scale = scales.tensor(DType::kF32, all_blocks);
    if (parameter.box == whole) {
      quantize_box(host, read, whole, codes, scale);
    } else {
      const Buffer others("codes of the whole weight", parameter.whole.numel() / 2);
      quantize_box(host, read, whole,
                   others.tensor(DType::kU8, {parameter.whole[0], parameter.whole[1] / 2}), scale);
      const Buffer own("scales of the box", blocks.numel() * dtype_size(DType::kF32));
      quantize_box(host, read, parameter.box, codes, own.tensor(DType::kF32, blocks));
    }
    pack_scales(parameter, scale, packed);
  }
  transfer(ctx, block_.tensor(DType::kU8, {parameter.bytes}, parameter.begin),
           packed.tensor(DType::kU8, {parameter.bytes}));
}

void PackedWeights::unpack(Ctx& ctx, ParamHandle h, const Tensor& w) const {
  const Nf4Parameter& parameter = packed_[static_cast<size_t>(h)];
  TRIREME_CHECK(parameter.bytes > 0, "parameter ", h, " is not packed");
  const auto at = [&](int64_t offset, DType dtype, const Shape& shape) {
    return part(block_, parameter.begin + offset, dtype, shape);
  };
  const Shape blocks{parameter.rows(), parameter.blocks()};
  Nf4Scales scales;
  if (double_) {
    scales.codes = at(parameter.scale, DType::kU8, blocks);
    scales.groups = at(parameter.groups, DType::kF32, {parameter.scale_groups()});
    scales.offset = at(parameter.offset, DType::kF32, {1});
    scales.stride = parameter.whole_blocks();
    scales.first = parameter.box.start[0] * scales.stride + parameter.box.start[1] / kNf4Block;
  } else {
    scales.scale = at(parameter.scale, DType::kF32, blocks);
  }
  dequantize_nf4(ctx, w, at(0, DType::kU8, {parameter.rows(), parameter.columns() / 2}), scales);
}

}  // namespace trireme
