// Weights quantized to 8-bit and 4-bit integers.
//
// 8 bits: every row of w (N, K) has a scale (N) float32 = max |w| / 127; codes (N, K) uint8 hold
// the int8 nearest to w / scale:
//   w ~ scale[n] * code
// 4 bits: 128 neighbours in a row form a group with a scale and, unless symmetric, a minimum, both
// (N, ceil(K / 128)) float32; the last group may be shorter. codes (N, K / 2) uint8, two in a byte,
// the one of the lower column in the lower four bits; K is even:
//   with a minimum   scale = (max w - min w) / 15, minimum = min w
//                    code = nearest of (w - minimum) / scale, 0 ... 15
//                    w ~ minimum + scale * code
//   symmetric        scale = max |w| / 7
//                    code = 8 + nearest of w / scale, 1 ... 15
//                    w ~ scale * (code - 8)
// Ties are rounded to even; a scale of 0 is stored as 1. w is of any float dtype, finite,
// contiguous, rounded to float32 first.
//
// Checkpoints of GPTQ (Frantar et al. 2022) and AWQ (Lin et al. 2023) with groups of 128 store
// integers q with a scale and a zero point z per group, w = scale * (q - z): equivalent to code = q
// and minimum = -scale * z, or symmetric if z is 8. Both store the transpose (K, N). An int32 word
// holds eight q: for GPTQ along K, from low to high bits; for AWQ along N, in the order
// 0 2 4 6 1 3 5 7.
#pragma once

#include "engine/ops/context.h"

namespace trireme {

inline constexpr int64_t kInt4Group = 128;

void quantize_int8(Ctx& ctx, const Tensor& codes, const Tensor& scale, const ConstTensor& w);
// w (N, K) = scale * code in float32, rounded once to w's dtype.
void dequantize_int8(Ctx& ctx, const Tensor& w, const ConstTensor& codes, const ConstTensor& scale);

// minimum absent: symmetric.
void quantize_int4(Ctx& ctx, const Tensor& codes, const Tensor& scale, const Tensor& minimum,
                   const ConstTensor& w);
void dequantize_int4(Ctx& ctx, const Tensor& w, const ConstTensor& codes, const ConstTensor& scale,
                     const ConstTensor& minimum);

}  // namespace trireme
