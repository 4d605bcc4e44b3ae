// Block quantization of gradients and updates for slow links: 8, 4 or 1 bits per element and one
// scale per block.
//
// Each row of x (R, C) is cut into blocks of `block` columns, B = ceil(C / block) per row; the last
// one may be shorter. With v = x + residual, in float32 (float64 for a float64 x):
//   8 bits  scale = max |v| / 127     code = nearest of v / scale, -127 ... 127   y = scale * code
//   4 bits  scale = max |v| / 7       code = 8 + nearest of v / scale, 1 ... 15
//                                                                        y = scale * (code - 8)
//   1 bit   scale = mean |v|          code = 1 if v >= 0, else 0         y = scale or -scale
//   residual = v - y                  what the next encoding adds (error feedback)
// v / scale is v * (1 / scale), ties are rounded to even. A scale below the smallest normal float32
// is stored as 0: its block decodes to 0. If v has an element that is not finite, or is so large
// that the scale is not, the scale is not finite and the residual of the block is left as it was.
//
// scale (R, B) float32. codes (R, block_code_bytes(C)) uint8: a block begins at a byte; element i
// of a block of b-bit codes has the bits from i b on, lowest first; unused bits are 0. The bits are
// the same on every machine, and those of a part of x that consists of whole blocks are the bits
// that it has in x.
//
// x is of any float dtype; residual has the dtype of v. Operands are contiguous and do not overlap.
//
// 1 bit with error feedback: Seide et al. 2014, "1-bit stochastic gradient descent and its
// application to data-parallel distributed training of speech DNNs"; with the mean as the scale:
// Karimireddy et al. 2019, "Error feedback fixes SignSGD".
#pragma once

#include "engine/ops/context.h"

namespace trireme {

inline constexpr int64_t kMaxQuantBlock = int64_t{1} << 20;

struct BlockCode {
  int bits = 8;         // 8, 4 or 1
  int64_t block = 256;  // columns, a multiple of 8, at most kMaxQuantBlock
};

// Bytes of the codes of a row.
int64_t block_code_bytes(const BlockCode& code, int64_t columns);

// residual may be absent: v = x.
void encode_blocks(Ctx& ctx, const BlockCode& code, const Tensor& scale, const Tensor& codes,
                   const ConstTensor& x, const Tensor& residual);

// y (R, C) of any float dtype: the decoded values, rounded once; with `add`, y + them.
void decode_blocks(Ctx& ctx, const BlockCode& code, const Tensor& y, const ConstTensor& scale,
                   const ConstTensor& codes, bool add);

}  // namespace trireme
