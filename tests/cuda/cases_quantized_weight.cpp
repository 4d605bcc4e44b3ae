#include <cmath>

#include "engine/ops/quantized/quantized_weight.h"
#include "engine/ops/rows/transfer.h"
#include "tests/cuda/registry.h"

namespace trireme::test {
namespace {

const char* letter(BlockFormat format) { return format == BlockFormat::kQ8_0 ? "Q8_0" : "Q4_0"; }

uint32_t word_of(const std::string& name, int64_t i) {
  return philox_word({4, stream_id(name)}, static_cast<uint64_t>(i));
}

// Bytes of a matrix as int32: groups of 16 rows of blocks, each with 16 scales between 2^-9 and
// 2^-6, then codes.
std::vector<double> block_words(const std::string& name, BlockFormat format, int64_t n) {
  const int64_t of_block = format == BlockFormat::kQ8_0 ? 8 + 128 : 8 + 64;
  std::vector<double> out(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) {
    uint32_t word = word_of(name, i);
    if (i % of_block < 8) {
      const uint32_t low = 0x1800 + (word & 0xbffu), high = 0x1800 + (word >> 16 & 0xbffu);
      word = (low | (word & 0x8000u)) | (high | (word >> 16 & 0x8000u)) << 16;
    } else if (format == BlockFormat::kQ8_0) {
      for (int b = 0; b < 32; b += 8)  // no format uses -128
        if ((word >> b & 0xffu) == 0x80) word |= 1u << b;
    }
    out[static_cast<size_t>(i)] = static_cast<double>(static_cast<int32_t>(word));
  }
  return out;
}

QuantizedMatrix matrix_of(OpRun& run, const std::string& name, BlockFormat format, int64_t rows,
                          int64_t columns) {
  const int64_t bytes = block_matrix_bytes(format, rows, columns);
  const ConstTensor words = run.made(name, DType::kI32, {bytes / 4},
                                     [&] { return block_words(name, format, bytes / 4); });
  return {format, rows, columns, ConstTensor(words.raw(), DType::kU8, {bytes}, words.device())};
}

// Rows that int8 represents exactly: multiples of 1/64, with a maximum of 127/64 in each block.
ConstTensor exact_rows(OpRun& run, DType dtype, int64_t rows, int64_t columns) {
  return run.made("x", dtype, {rows, columns}, [=] {
    std::vector<double> out(static_cast<size_t>(rows * columns));
    for (int64_t i = 0; i < rows * columns; ++i) {
      const auto integer = static_cast<int>(word_of("x", i) % 255) - 127;
      out[static_cast<size_t>(i)] = (i % columns % kQuantBlock == 0 ? 127 : integer) / 64.0;
    }
    return out;
  });
}

struct Size {
  int64_t m, n, k;
  bool large = false;
};

std::string name_of(const Size& s, BlockFormat format) {
  return concat("(", s.m, ", ", s.k, ") x (", s.n, ", ", s.k, ")^T ", letter(format));
}

// Codes and sums, bitwise, for few of the rows; one of them contains an infinity.
OpCase quantize_case(const Size& s, DType dtype) {
  return {.op = "quantize_rows",
          .shape = concat(s.m, " of (", s.m + 2, ", ", s.k, ")"),
          .dtype = dtype,
          .body =
              [=](OpRun& run) {
                const Shape shape{s.m + 2, s.k};
                const ConstTensor x = run.made("x", dtype, shape, [&] {
                  std::vector<double> out = normals("x", shape.numel());
                  for (int64_t i = 0; i < std::min<int64_t>(s.k, 32); ++i)
                    out[static_cast<size_t>(i)] = 0;
                  if (s.m > 1) out[static_cast<size_t>(s.k)] = -HUGE_VAL;
                  return out;
                });
                const QuantizedRows rows = quantize_rows(run.ctx, x, s.m);
                const Shape blocks{s.m, ceil_div(s.k, kQuantBlock)};
                const Tensor codes =
                    run.output("codes", DType::kU8, {s.m, blocks[1] * kQuantBlock}, exact());
                const Tensor sum = run.output("sum", DType::kI32, blocks, exact());
                // The scale may be NaN, which no output may be.
                const Tensor scale = run.updated("scale", DType::kF32, blocks, each());
                transfer(run.ctx, codes, rows.codes->slice(0, 0, s.m));
                transfer(run.ctx, sum, rows.sum->slice(0, 0, s.m));
                transfer(run.ctx, scale, rows.scale->slice(0, 0, s.m));
              },
          .bytes = static_cast<double>(s.m * s.k * (dtype_size(dtype) + 1)),
          .large = s.large};
}

// Sums of integers are exact: results differ only by the order of K / 32 terms.
OpCase product_case(const Size& s, BlockFormat format, DType dtype, DType out) {
  return {.op = "block_product",
          .shape = concat(name_of(s, format), out == dtype ? "" : " to float32"),
          .dtype = dtype,
          .body =
              [=](OpRun& run) {
                const QuantizedRows x =
                    quantize_rows(run.ctx, run.random("x", dtype, {s.m + 1, s.k}), s.m + 1);
                const QuantizedMatrix w = matrix_of(run, "w", format, s.n, s.k);
                const Tensor y =
                    run.output("y", out, {s.m, s.n}, whole(ceil_div(s.k, kQuantBlock) + 3));
                block_product(run.ctx, y, x, 1, {&w, 1}, {});
              },
          .flops = 2.0 * static_cast<double>(s.m * s.n * s.k),
          .bytes = static_cast<double>(block_matrix_bytes(format, s.n, s.k)),
          .large = s.large};
}

// Two matrices next to each other and a bias, with few rows and with enough rows for decoded
// weights.
OpCase linear_case(const Size& s, BlockFormat format, DType dtype) {
  return {.op = "linear_forward_blocks",
          .shape = name_of(s, format),
          .dtype = dtype,
          .body =
              [=](OpRun& run) {
                const QuantizedMatrix parts[] = {matrix_of(run, "w", format, s.n, s.k),
                                                 matrix_of(run, "v", BlockFormat::kQ8_0, 5, s.k)};
                const Tensor y = run.output("y", dtype, {s.m, s.n + 5}, whole(s.k + 3));
                linear_forward_blocks(run.ctx, y, exact_rows(run, dtype, s.m, s.k), parts,
                                      run.random("bias", dtype, {s.n + 5}));
              },
          .flops = 2.0 * static_cast<double>(s.m * s.n * s.k),
          .bytes = static_cast<double>(block_matrix_bytes(format, s.n, s.k)),
          .large = s.large};
}

OpCase decode_case(const Size& s, BlockFormat format, DType dtype) {
  return {.op = "decode_blocks",
          .shape = concat("(", s.n, ", ", s.k, ") ", letter(format)),
          .dtype = dtype,
          .body =
              [=](OpRun& run) {
                decode_blocks(run.ctx, run.output("w", dtype, {s.n, s.k}, exact()),
                              matrix_of(run, "blocks", format, s.n, s.k));
              },
          .bytes = static_cast<double>(block_matrix_bytes(format, s.n, s.k) +
                                       s.n * s.k * dtype_size(dtype)),
          .large = s.large};
}

// A vocabulary shard of n rows, starting at row 3; some tokens have no row in it.
OpCase embedding_case(const Size& s, BlockFormat format, DType dtype) {
  return {.op = "embedding_forward_blocks",
          .shape = concat(s.m, " of (", s.n, ", ", s.k, ") ", letter(format)),
          .dtype = dtype,
          .body =
              [=](OpRun& run) {
                embedding_forward_blocks(run.ctx, run.output("y", dtype, {s.m, s.k}, exact()),
                                         matrix_of(run, "table", format, s.n, s.k),
                                         run.integers("ids", DType::kI32, {s.m}, 0, s.n + 7),
                                         {.first = 3, .total = s.n + 7});
              },
          .bytes = static_cast<double>(s.m * s.k * (dtype_size(dtype) + 1)),
          .large = s.large};
}

}  // namespace

std::vector<OpCase> quantized_weight_cases() {
  // One row, none, sizes that are not whole blocks, groups or row tiles, and many of each.
  const std::vector<Size> sizes = {{1, 1, 1},   {0, 17, 40},  {3, 16, 32},
                                   {8, 33, 70}, {11, 20, 96}, {37, 40, 1300}};
  std::vector<OpCase> cases;
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const Size& s : sizes) cases.push_back(quantize_case(s, dtype));
    cases.push_back(quantize_case({64, 0, 14336, true}, dtype));
    for (const BlockFormat format : {BlockFormat::kQ8_0, BlockFormat::kQ4_0}) {
      for (const Size& s : sizes) {
        cases.push_back(product_case(s, format, dtype, dtype));
        if (s.m > 0) cases.push_back(decode_case(s, format, dtype));
        if (s.n > 1) cases.push_back(embedding_case(s, format, dtype));
      }
      for (const Size& s : {Size{7, 16, 70}, Size{kMaxBlockRows + 3, 37, 72}})
        cases.push_back(linear_case(s, format, dtype));
      if (dtype != DType::kBF16) continue;
      cases.push_back(product_case({3, 16, 64}, format, dtype, DType::kF32));
      for (const int64_t m : {1, 8, 64})
        cases.push_back(product_case({m, 4096, 14336, true}, format, dtype, dtype));
      cases.push_back(linear_case({2048, 4096, 14336, true}, format, dtype));
      cases.push_back(decode_case({0, 4096, 14336, true}, format, dtype));
    }
  }
  return cases;
}

}  // namespace trireme::test
