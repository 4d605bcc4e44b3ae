// Weights in 8 or 4 bits, as GGUF files hold them (engine/io/gguf_blocks.h), and products with
// them: inference reads a weight for every token, and that is what its time goes to.
//
// 32 neighbours in a row of w (N, K) are a block with a scale d in float16; the last of a row is
// filled up with zeros:
//   Q8_0   w ~ d q         q in int8, at most 127 in magnitude
//   Q4_0   w ~ d (q - 8)   q in 4 bits
// A matrix of them is an array of bytes in which 16 rows are interleaved
// (engine/ops/cpu/block_weight.h); rows and columns may be any number.
//
// In a product rows of x are rounded to int8 as well, block by block: e = max |x| / 127, r = x / e
// to the nearest, ties to even; a block that holds a value that is not finite has a scale that is
// NaN. Then
//   y[i, n] = sum over blocks of float32(sum of q r) * (d e) [+ bias[n]]
// where the sum inside a block is of integers, exact, and blocks are added in their order in
// float32. So
//   |y - x w~^T| <= sum over blocks of e / 2 * sum |w~|, and float32's rounding of K / 32 + 3 terms.
// A row of y has the same bits whatever rows are computed beside it, and for any number of threads.
//
// A GPU adds the blocks in another order, one fixed for each K. Where linear_forward_blocks() has
// more than kMostBlockRows rows there, it does not round x: the weights are decoded into x's type,
// a piece at a time, and the library multiplies.
//
// dtypes of x and y: float32, bfloat16, float16.
#pragma once

#include <span>

#include "engine/ops/context.h"
#include "engine/ops/embedding.h"

namespace trireme {

enum class BlockFormat : uint8_t { kQ8_0, kQ4_0 };
inline constexpr int64_t kWeightBlock = 32;
inline constexpr int64_t kWeightGroup = 16;  // rows

// Above it a GPU's time for reading the blocks once for every 32 rows is as long as for decoding
// them.
inline constexpr int64_t kMostBlockRows = 64;

int64_t block_file_bytes(BlockFormat format);  // of a block in a file: 34, 18
// Of a matrix; a multiple of 32.
int64_t block_matrix_bytes(BlockFormat format, int64_t rows, int64_t columns);

struct BlockMatrix {
  BlockFormat format = BlockFormat::kQ8_0;
  int64_t rows = 0, columns = 0;
  ConstTensor
      bytes;  // (block_matrix_bytes()) uint8, 32-byte aligned; those that no row has are zero
};

// Puts one block of a row, as a file holds it, into the bytes of a matrix, which are on the host.
void store_block(const BlockMatrix& matrix, const Tensor& bytes, int64_t row, int64_t block,
                 const std::byte* from);
// w (rows, columns) of any of the dtypes above: what the codes stand for.
void decode_blocks(Ctx& ctx, const Tensor& w, const BlockMatrix& matrix);
// embedding_forward() of a table in blocks. (On a GPU ids of no entry make rows of NaN.)
void embedding_forward_blocks(Ctx& ctx, const Tensor& y, const BlockMatrix& table,
                              const ConstTensor& ids, const TableShard& shard = {});

// x (R, K) in int8, in memory of the step. used: rows from here on are left out.
struct QuantizedRows {
  int64_t rows = 0, columns = 0;
  Activation codes = {}, scale = {}, sum = {};
};
QuantizedRows quantize_rows(Ctx& ctx, const ConstTensor& x, int64_t used);

// y (n, N) of rows first_row .. first_row + n of x. The outputs of the parts stand side by side;
// bias (N) of y's dtype, or absent.
void block_product(Ctx& ctx, const Tensor& y, const QuantizedRows& x, int64_t first_row,
                   std::span<const BlockMatrix> parts, const ConstTensor& bias);
// Both in one: x (T, K), y (T, N). Timed as gemm.
void linear_forward_blocks(Ctx& ctx, const Tensor& y, const ConstTensor& x,
                           std::span<const BlockMatrix> parts, const ConstTensor& bias);

}  // namespace trireme
