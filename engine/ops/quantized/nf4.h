// Weights in 4 bits of NormalFloat (Dettmers et al. 2023, "QLoRA"): 16 values that are the
// quantiles of a normal distribution, scaled to the largest magnitude of a block.
//
// 64 neighbours in a row of w (N, K) form a block, B = ceil(K / 64) per row; the last may be
// shorter, and K is even. With the values v of kNf4Value (nf4.kernels.h), ascending from -1 to 1
// and including 0:
//   scale[n, b] = max |w| of the block                       (N, B) float32
//   code        = the i whose v[i] is nearest to w / scale   the lower i at a tie
//   w           ~ v[code] * scale                            in float32, rounded once to w's type
// codes (N, K / 2) uint8, two in a byte, that of the lower column in the upper four bits. w / scale
// is computed as w * (1 / max(scale, 1e-38)), so that a block of zeros decodes to exact zeros. w is
// of any float dtype, finite, contiguous, rounded to float32 first.
//
// Double quantization stores the scales of a whole weight, flattened, as 8-bit codes. `offset` (1)
// float32 is their mean; `groups` (ceil(N B / 256)) float32 has the largest |scale - offset| of
// each 256 of them:
//   scale ~ m[code] * groups[flattened index / 256] + offset     two roundings to float32
// where m are the 256 values of the signed dynamic type of Dettmers et al. 2021 (arXiv 2110.02861),
// ascending, and code is the index of the m nearest to (scale - offset) / groups. A part of a
// weight that consists of whole blocks has the same codes as in the weight.
//
// For K a multiple of 64 the bytes are those of bitsandbytes ("nf4", compress_statistics).
#pragma once

#include "engine/ops/context.h"

namespace trireme {

inline constexpr int64_t kNf4Block = 64;
inline constexpr int64_t kNf4ScaleGroup = 256;

void quantize_nf4(Ctx& ctx, const Tensor& codes, const Tensor& scale, const ConstTensor& w);

// Scales of a weight or of a part of one.
struct Nf4Scales {
  ConstTensor scale = {};  // (N, B) float32; absent with double quantization
  ConstTensor codes = {};  // (N, B) uint8; this and the rest: only with double quantization
  ConstTensor groups = {}, offset = {};  // those of the whole weight
  // Scale (n, b) of the part is number first + n * stride + b of the whole weight's, flattened.
  // stride 0: B.
  int64_t first = 0, stride = 0;
};
void dequantize_nf4(Ctx& ctx, const Tensor& w, const ConstTensor& codes, const Nf4Scales& scales);

// Double quantization of all scales of a weight, on the host: once, when weights are loaded.
//   scale (S) float32   codes (S) uint8   groups (ceil(S / 256)) float32   offset (1) float32
void quantize_nf4_scales(const Tensor& codes, const Tensor& groups, const Tensor& offset,
                         const ConstTensor& scale);

}  // namespace trireme
