// Weights quantized to 8 or 4 bits in the block formats of GGUF (engine/io/gguf_blocks.h), and
// products with them, for inference, whose time is mostly spent on reading the weights.
//
// 32 neighbours in a row of w (N, K) form a block with a scale d in float16; the last block of a
// row is padded with zeros:
//   Q8_0   w ~ d q         q in int8, at most 127 in magnitude
//   Q4_0   w ~ d (q - 8)   q in 4 bits
// A matrix is an array of bytes with 16 rows interleaved
// (engine/ops/quantized/quantized_weight.kernels.h); any number of rows and columns is allowed.
//
// In a product x is rounded to int8 as well, block by block: e = max |x| / 127, and r is x * (127 /
// max |x|), rounded to nearest even. A block with max |x| <= 1e-30 has e = 0 and r = 0; a block
// with a non-finite value has a NaN e. Then
//   y[i, n] = sum over blocks of float32(sum of q r) * (d e) [+ bias[n]]
// with q - 8 in place of q for Q4_0. The sum inside a block is over integers, hence exact; blocks
// are added in order in float32. With w~ the decoded weight:
//   |y - x w~^T| <= sum over blocks of e / 2 * sum |w~|, plus float32 rounding of K / 32 + 3 terms
// The bits of a row of y do not depend on the other rows or on the number of threads.
//
// A GPU adds the blocks in another order, fixed for each K. For more than kMaxBlockRows rows
// linear_forward_blocks() on a GPU does not round x: it decodes the weights into x's dtype, a piece
// at a time, and calls gemm().
//
// dtypes of x and y: float32, bfloat16, float16.
#pragma once

#include <span>

#include "engine/ops/context.h"
#include "engine/ops/rows/embedding.h"

namespace trireme {

enum class BlockFormat : uint8_t { kQ8_0, kQ4_0 };
inline constexpr int64_t kQuantBlock = 32;
inline constexpr int64_t kWeightGroup = 16;  // rows

// Maximum rows of x that a GPU multiplies in blocks: with more, reading the blocks once for every
// 32 rows takes as long as decoding them.
inline constexpr int64_t kMaxBlockRows = 64;

int64_t block_file_bytes(BlockFormat format);  // bytes of one block in a file: 34 or 18
// Returns the bytes of a matrix, a multiple of 32.
int64_t block_matrix_bytes(BlockFormat format, int64_t rows, int64_t columns);

struct QuantizedMatrix {
  BlockFormat format = BlockFormat::kQ8_0;
  int64_t rows = 0, columns = 0;
  ConstTensor bytes;  // (block_matrix_bytes()) uint8, 32-byte aligned; padding rows are zero
};

// Stores one block of a row, read from `from` in the file's format (block_file_bytes()), into
// `bytes`: those of the matrix, on the host. Does not read matrix.bytes.
void store_block(const QuantizedMatrix& matrix, const Tensor& bytes, int64_t row, int64_t block,
                 const std::byte* from);
// Decodes the matrix into w (rows, columns), of any of the dtypes above.
void decode_blocks(Ctx& ctx, const Tensor& w, const QuantizedMatrix& matrix);
// embedding_forward() of a table in blocks, with its errors, without `accumulate`.
void embedding_forward_blocks(Ctx& ctx, const Tensor& y, const QuantizedMatrix& table,
                              const ConstTensor& ids, const TableShard& shard = {});

// x (R, K) in int8, as described above, in memory of the step. With B = ceil(K / 32) blocks a row:
//   codes (R, 32 B) uint8: r as int8; scale (R, B) float32: e; sum (R, B) int32: sum of a block's r
struct QuantizedRows {
  int64_t rows = 0, columns = 0;  // R, K
  Activation codes = {}, scale = {}, sum = {};
};
// Quantizes rows [0, used) of x (R, K): unit stride in the columns, any stride of rows. The others
// are left unwritten.
QuantizedRows quantize_rows(Ctx& ctx, const ConstTensor& x, int64_t used);

// y (n, N) = rows [first_row, first_row + n) of x times the transpose of the weight [+ bias]. The
// weight (N, K) is the rows of `parts` in order: each part has K columns, and N is the sum of their
// rows. bias (N) of y's dtype, or absent.
void block_product(Ctx& ctx, const Tensor& y, const QuantizedRows& x, int64_t first_row,
                   std::span<const QuantizedMatrix> parts, const ConstTensor& bias);
// Linear layer: x (T, K), y (T, N). Quantizes x and multiplies, except on a GPU for T >
// kMaxBlockRows (see above).
void linear_forward_blocks(Ctx& ctx, const Tensor& y, const ConstTensor& x,
                           std::span<const QuantizedMatrix> parts, const ConstTensor& bias);

}  // namespace trireme
