#include "engine/ops/quantized/quantized_weight.h"

#include <algorithm>
#include <cstring>

#include "engine/core/convert_float.h"
#include "engine/core/parallel_for.h"
#include "engine/ops/backend/index_check.h"
#include "engine/ops/backend/pick_kernel.h"
#include "engine/ops/gemm/gemm.h"
#include "engine/ops/quantized/quantized_weight.kernels.h"

namespace trireme {
namespace {

static_assert(kQuantBlock == cpu::kBlockColumns && kWeightGroup == cpu::kGroupRows);

bool four_bits(BlockFormat format) { return format == BlockFormat::kQ4_0; }
int64_t blocks_of(int64_t columns) { return ceil_div(columns, kQuantBlock); }

void check_matrix(const char* op, const QuantizedMatrix& m) {
  TRIREME_CHECK(m.rows >= 0 && m.columns > 0, op, ": a matrix of ", m.rows, " x ", m.columns,
                ", expected at least one column");
  check_operand(op, "the blocks", m.bytes, DType::kU8,
                {block_matrix_bytes(m.format, m.rows, m.columns)});
}

void check_type(const char* op, const char* operand, const ConstTensor& t) {
  TRIREME_CHECK(is_float(t.dtype()) && t.dtype() != DType::kF64, op, ": ", operand, " is ",
                t.dtype());
}

// Byte offsets of a row's block: start of the group's block, and the row's scale. lane: the row's
// number in its group.
struct QuantBlockAddress {
  int64_t group, scale;  // bytes
  int64_t lane;
};
QuantBlockAddress place_of(const QuantizedMatrix& m, int64_t row, int64_t block) {
  const int64_t bytes = cpu::group_block_bytes(four_bits(m.format));
  const int64_t lane = row % kWeightGroup;
  const int64_t group = (row / kWeightGroup * blocks_of(m.columns) + block) * bytes;
  return {group, group + 2 * lane, lane};
}

// Byte i of a block's codes in a file belongs to piece i / 4.
int64_t code_offset(const QuantBlockAddress& at, int64_t i) {
  return at.group + cpu::kGroupScaleBytes + i / 4 * cpu::kPieceBytes + at.lane * 4 + i % 4;
}

void decode_block(const QuantizedMatrix& m, int64_t row, int64_t block, float* out) {
  const auto* const bytes = m.bytes.as<uint8_t>();
  const QuantBlockAddress at = place_of(m, row, block);
  f16 half;
  std::memcpy(&half, bytes + at.scale, sizeof half);
  const auto scale = static_cast<float>(half);
  if (!four_bits(m.format)) {
    for (int64_t i = 0; i < kQuantBlock; ++i)
      out[i] = scale * static_cast<float>(static_cast<int8_t>(bytes[code_offset(at, i)]));
    return;
  }
  for (int64_t i = 0; i < kQuantBlock / 2; ++i) {
    const int two = bytes[code_offset(at, i)];
    out[i] = scale * static_cast<float>((two & 15) - 8);
    out[i + kQuantBlock / 2] = scale * static_cast<float>((two >> 4) - 8);
  }
}

template <class T>
void decode_row(const QuantizedMatrix& m, int64_t row, T* out) {
  float numbers[kQuantBlock];
  for (int64_t begin = 0; begin < m.columns; begin += kQuantBlock) {
    decode_block(m, row, begin / kQuantBlock, numbers);
    const int64_t width = std::min(kQuantBlock, m.columns - begin);
    for (int64_t i = 0; i < width; ++i) out[begin + i] = convert_float<T>(numbers[i]);
  }
}

// Calls f.operator()<T>() for a type that products support.
template <class F>
void dispatch_narrow(const char* op, DType dtype, F&& f) {
  dispatch_float(op, dtype, [&]<class T>() {
    if constexpr (std::is_same_v<T, double>)
      TRIREME_UNREACHABLE(op, " in float64");
    else
      f.template operator()<T>();
  });
}

constexpr int64_t kDecodeGrain = 1 << 12;  // elements worth a thread

}  // namespace

int64_t block_file_bytes(BlockFormat format) { return four_bits(format) ? 18 : 34; }

int64_t block_matrix_bytes(BlockFormat format, int64_t rows, int64_t columns) {
  return checked_mul(checked_mul(ceil_div(rows, kWeightGroup), blocks_of(columns)),
                     cpu::group_block_bytes(four_bits(format)));
}

void store_block(const QuantizedMatrix& matrix, const Tensor& bytes, int64_t row, int64_t block,
                 const std::byte* from) {
  auto* const to = bytes.as<uint8_t>();
  const QuantBlockAddress at = place_of(matrix, row, block);
  std::memcpy(to + at.scale, from, 2);
  for (int64_t i = 0; i < block_file_bytes(matrix.format) - 2; ++i)
    to[code_offset(at, i)] = std::to_integer<uint8_t>(from[2 + i]);
}

void decode_blocks(Ctx& ctx, const Tensor& w, const QuantizedMatrix& matrix) {
  const char* const op = "decode_blocks";
  check_matrix(op, matrix);
  check_type(op, "w", w);
  check_operand(op, "w", w, w.dtype(), {matrix.rows, matrix.columns});
  if (ctx.planning()) return;
  const TimeScope scope(ctx.profile, TimeCategory::kOther);
  dispatch_narrow(op, w.dtype(), [&]<class T>() {
    if (ctx.gpu != nullptr)
      return cuda::decode_blocks<T>(
          *ctx.gpu, {w.as<T>(), matrix.bytes.as<uint8_t>(), four_bits(matrix.format), matrix.rows,
                     matrix.columns, blocks_of(matrix.columns)});
    parallel_for(ctx.threads, matrix.rows, kDecodeGrain / matrix.columns + 1,
                 [&](int64_t begin, int64_t end) {
                   for (int64_t row = begin; row < end; ++row)
                     decode_row(matrix, row, w.as<T>() + row * matrix.columns);
                 });
  });
}

void embedding_forward_blocks(Ctx& ctx, const Tensor& y, const QuantizedMatrix& table,
                              const ConstTensor& ids, const TableShard& shard) {
  const char* const op = "embedding_forward_blocks";
  check_matrix(op, table);
  check_type(op, "y", y);
  check_operand(op, "ids", ids, DType::kI32, {ids.numel()});
  check_operand(op, "y", y, y.dtype(), {ids.numel(), table.columns});
  const int64_t total = shard.total > 0 ? shard.total : table.rows;
  TRIREME_CHECK(shard.first >= 0 && shard.first + table.rows <= total, op, ": rows ", shard.first,
                " to ", shard.first + table.rows, " exceed the vocabulary of ", total);
  if (ctx.planning()) return;
  const TimeScope scope(ctx.profile, TimeCategory::kOther);
  if (ctx.gpu == nullptr) check_indices(op, "ids", ids, total);
  dispatch_narrow(op, y.dtype(), [&]<class T>() {
    if (ctx.gpu != nullptr)
      return cuda::embedding_blocks<T>(*ctx.gpu,
                                       {.y = y.as<T>(),
                                        .table = nullptr,
                                        .ids = ids.as<int32_t>(),
                                        .rows = ids.numel(),
                                        .columns = table.columns,
                                        .first_entry = shard.first,
                                        .entries = table.rows,
                                        .vocabulary = total,
                                        .accumulate = false},
                                       table.bytes.as<uint8_t>(), four_bits(table.format));
    for (int64_t t = 0; t < ids.numel(); ++t) {
      T* const row = y.as<T>() + t * table.columns;
      const int64_t entry = ids.as<int32_t>()[t] - shard.first;
      if (entry < 0 || entry >= table.rows)
        std::fill_n(row, table.columns, T{});
      else
        decode_row(table, entry, row);
    }
  });
}

QuantizedRows quantize_rows(Ctx& ctx, const ConstTensor& x, int64_t used) {
  const char* const op = "quantize_rows";
  TRIREME_CHECK(x.rank() == 2 && x.size(1) > 0 && used >= 0 && used <= x.size(0), op, ": x is ",
                x.shape(), " and used ", used, ", expected (R, K) with K > 0 and used <= R");
  TRIREME_CHECK(x.size(1) <= 1 || x.stride(1) == 1, op, ": x has column stride ", x.stride(1),
                ", expected 1");
  check_type(op, "x", x);
  const int64_t rows = x.size(0), columns = x.size(1), blocks = blocks_of(columns);
  QuantizedRows out{rows, columns};
  out.codes = ctx.allocate("int8.codes", DType::kU8, {rows, blocks * kQuantBlock});
  out.scale = ctx.allocate("int8.scale", DType::kF32, {rows, blocks});
  out.sum = ctx.allocate("int8.sum", DType::kI32, {rows, blocks});
  if (ctx.planning() || used == 0) return out;
  dispatch_narrow(op, x.dtype(), [&]<class T>() {
    const cpu::QuantizeRows<T> args{x.as<T>(),
                                    x.stride(0),
                                    used,
                                    columns,
                                    blocks,
                                    reinterpret_cast<int8_t*>(out.codes->as<uint8_t>()),
                                    out.scale->as<float>(),
                                    out.sum->as<int32_t>()};
    if (ctx.gpu != nullptr) return cuda::quantize_rows<T>(*ctx.gpu, args);
    TRIREME_KERNEL(quantize_rows<T>)(args, ctx.threads);
  });
  return out;
}

namespace {

bool has_vnni() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512vnni");
#else
  return false;
#endif
}

template <class T>
void run_product(Ctx& ctx, const cpu::BlockProduct<T>& a) {
  if (ctx.gpu != nullptr) return cuda::block_product<T>(*ctx.gpu, a);
  const int threads = ctx.threads;
  if (active_isa() == Isa::kAvx512 && !has_vnni())
    return (TRIREME_AVX2_KERNEL(block_product<T>))(a, threads);
  TRIREME_KERNEL(block_product<T>)(a, threads);
}

}  // namespace

void block_product(Ctx& ctx, const Tensor& y, const QuantizedRows& x, int64_t first_row,
                   std::span<const QuantizedMatrix> parts, const ConstTensor& bias) {
  const char* const op = "block_product";
  int64_t outputs = 0;
  for (const QuantizedMatrix& part : parts) {
    check_matrix(op, part);
    TRIREME_CHECK(part.columns == x.columns, op, ": x has ", x.columns, " columns, the weight ",
                  part.columns);
    outputs += part.rows;
  }
  TRIREME_CHECK(y.rank() == 2 && y.size(1) == outputs && (outputs <= 1 || y.stride(1) == 1), op,
                ": y is ", y.shape(), ", expected ", outputs, " outputs");
  TRIREME_CHECK(first_row >= 0 && first_row + y.size(0) <= x.rows, op, ": rows ", first_row, " to ",
                first_row + y.size(0), " exceed the ", x.rows, " of x");
  check_type(op, "y", y);
  if (bias.present()) check_operand(op, "bias", bias, y.dtype(), {outputs});
  if (ctx.planning() || y.size(0) == 0) return;
  const int64_t blocks = blocks_of(x.columns);
  dispatch_narrow(op, y.dtype(), [&]<class T>() {
    int64_t output = 0;
    for (const QuantizedMatrix& part : parts) {
      run_product<T>(ctx, {.w = part.bytes.as<uint8_t>(),
                           .four_bits = four_bits(part.format),
                           .n = part.rows,
                           .blocks = blocks,
                           .m = y.size(0),
                           .x = reinterpret_cast<const int8_t*>(x.codes->as<uint8_t>()) +
                                first_row * blocks * kQuantBlock,
                           .x_scale = x.scale->as<float>() + first_row * blocks,
                           .x_sum = x.sum->as<int32_t>() + first_row * blocks,
                           .y = y.as<T>() + output,
                           .y_stride = y.stride(0),
                           .bias = bias.present() ? bias.as<T>() + output : nullptr});
      output += part.rows;
    }
  });
}

namespace {

// Rows `first` .. `end` of a matrix; `first` must be the first row of a group.
QuantizedMatrix rows_of(const QuantizedMatrix& m, int64_t first, int64_t end) {
  const int64_t begin = block_matrix_bytes(m.format, first, m.columns);
  const int64_t bytes = block_matrix_bytes(m.format, end - first, m.columns);
  return {m.format, end - first, m.columns, m.bytes.slice(0, begin, begin + bytes)};
}

// Decodes the weights in pieces that may stay in the second-level cache, and multiplies.
void multiply_decoded(Ctx& ctx, const Tensor& y, const ConstTensor& x,
                      std::span<const QuantizedMatrix> parts, const ConstTensor& bias) {
  constexpr int64_t kPieceElements = 1 << 24;
  const int64_t columns = x.size(1);
  int64_t most = 0;
  for (const QuantizedMatrix& part : parts) most = std::max(most, part.rows);
  const int64_t piece =
      std::min(most, round_up(std::max<int64_t>(kPieceElements / columns, 1), kWeightGroup));
  const Activation memory = ctx.allocate("decoded weights", x.dtype(), {piece, columns});
  int64_t output = 0;
  for (const QuantizedMatrix& part : parts) {
    for (int64_t row = 0; row < part.rows; row += piece) {
      const int64_t end = std::min(part.rows, row + piece);
      const Tensor w = memory->slice(0, 0, end - row);
      decode_blocks(ctx, w, rows_of(part, row, end));
      const TimeScope timed(ctx.profile, TimeCategory::kGemm);
      const int64_t first = output + row, last = output + end;
      gemm(ctx, y.slice(1, first, last), x, Transpose::kNo, w, Transpose::kYes,
           {.bias = bias.present() ? bias.slice(0, first, last) : ConstTensor{}});
    }
    output += part.rows;
  }
}

}  // namespace

void linear_forward_blocks(Ctx& ctx, const Tensor& y, const ConstTensor& x,
                           std::span<const QuantizedMatrix> parts, const ConstTensor& bias) {
  if (ctx.gpu != nullptr && x.size(0) > kMaxBlockRows)
    return multiply_decoded(ctx, y, x, parts, bias);
  const TimeScope timed(ctx.profile, TimeCategory::kGemm);
  const QuantizedRows rows = quantize_rows(ctx, x, x.size(0));
  block_product(ctx, y, rows, 0, parts, bias);
}

}  // namespace trireme
