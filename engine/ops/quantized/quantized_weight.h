// Weights quantized to 8 or 4 bits in the block formats of GGUF (engine/io/gguf_blocks.h), and
// products with them: inference reads every weight for every token, which takes most of its time.
//
// 32 neighbours in a row of w (N, K) form a block with a scale d in float16; the last block of a
// row is padded with zeros:
//   Q8_0   w ~ d q         q in int8, at most 127 in magnitude
//   Q4_0   w ~ d (q - 8)   q in 4 bits
// A matrix is an array of bytes with 16 rows interleaved
// (engine/ops/quantized/quantized_weight.kernels.h); any number of rows and columns is allowed.
//
// In a product rows of x are rounded to int8 as well, block by block: e = max |x| / 127, r = x / e
// to the nearest, ties to even; a block with a non-finite value has a NaN scale. Then
//   y[i, n] = sum over blocks of float32(sum of q r) * (d e) [+ bias[n]]
// where the sum inside a block is over integers, exact, and blocks are added in order in float32.
// Hence
//   |y - x w~^T| <= sum over blocks of e / 2 * sum |w~|, plus float32's rounding of K / 32 + 3
//                   terms.
// A row of y has the same bits for any other rows computed with it, and for any number of threads.
//
// A GPU adds the blocks in another order, fixed for each K. For more than kMaxBlockRows rows
// linear_forward_blocks() does not round x there: the weights are decoded into x's type, a piece at
// a time, and the library multiplies.
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

// Above it, reading the blocks once for every 32 rows takes a GPU as long as decoding them.
inline constexpr int64_t kMaxBlockRows = 64;

int64_t block_file_bytes(BlockFormat format);  // of one block in a file: 34, 18
// Bytes of a matrix; a multiple of 32.
int64_t block_matrix_bytes(BlockFormat format, int64_t rows, int64_t columns);

struct BlockMatrix {
  BlockFormat format = BlockFormat::kQ8_0;
  int64_t rows = 0, columns = 0;
  ConstTensor bytes;  // (block_matrix_bytes()) uint8, 32-byte aligned; bytes of no row are zero
};

// Stores one block of a row, in the file's format, into a matrix's bytes, which are on the host.
void store_block(const BlockMatrix& matrix, const Tensor& bytes, int64_t row, int64_t block,
                 const std::byte* from);
// w (rows, columns), of any of the dtypes above, decoded.
void decode_blocks(Ctx& ctx, const Tensor& w, const BlockMatrix& matrix);
// embedding_forward() of a table in blocks. (On a GPU invalid ids produce rows of NaN.)
void embedding_forward_blocks(Ctx& ctx, const Tensor& y, const BlockMatrix& table,
                              const ConstTensor& ids, const TableShard& shard = {});

// x (R, K) in int8, in memory of the step. used: rows from this one on are skipped.
struct QuantizedRows {
  int64_t rows = 0, columns = 0;
  Activation codes = {}, scale = {}, sum = {};
};
QuantizedRows quantize_rows(Ctx& ctx, const ConstTensor& x, int64_t used);

// y (n, N) of rows first_row .. first_row + n of x. The outputs of the parts are adjacent columns;
// bias (N) of y's dtype, or absent.
void block_product(Ctx& ctx, const Tensor& y, const QuantizedRows& x, int64_t first_row,
                   std::span<const BlockMatrix> parts, const ConstTensor& bias);
// Quantizes x and multiplies: x (T, K), y (T, N). Timed as gemm.
void linear_forward_blocks(Ctx& ctx, const Tensor& y, const ConstTensor& x,
                           std::span<const BlockMatrix> parts, const ConstTensor& bias);

}  // namespace trireme
