// Quantization of tensors to 8-bit floats, and back (Micikevicius et al. 2022, "FP8 Formats for
// Deep Learning"; delayed scaling as in NVIDIA's Transformer Engine; blocks as in DeepSeek-V3).
//
// Codes are a uint8 tensor; the caller passes its format (engine/core/float8.h). A code is decoded
// by multiplying with `inverse` (float32):
//   code = fp8(float32(x) * scale)   rounded to nearest even, saturating; NaN stays NaN
//   inverse = 1 / scale              x ~ inverse * code
// x is rounded to float32 first: every step is exact or one rounding, so that all devices agree in
// every bit. Tensors are contiguous; x is of any float dtype.
//
// The shape of `inverse` determines which elements share a scale:
//   kTensor   (1)                                  all
//   kRowGroup (ceil(C / 128), R)                   128 neighbours in a row of an (R, C) tensor:
//                                                  activations. Element (r, c) has
//                                                  inverse[c / 128, r]: transposed, as the matrix
//                                                  product reads it
//   kBlock    (ceil(R / 128), ceil(C / 128))       a block of 128 by 128: weights. Its second size
//                                                  is rounded up to a multiple of 4, as the product
//                                                  requires; the padding is written as 0
#pragma once

#include "engine/core/float8.h"
#include "engine/ops/context.h"

namespace trireme {

inline constexpr int64_t kFloat8Block = 128;
// Returns the shape of `inverse` for codes of shape (R, C), or of any shape for kTensor.
Shape float8_inverse_shape(Float8Scaling scaling, const Shape& codes);

// out (1) float32 = max |float32(x)|, 0 for an empty x. With `accumulate` out becomes the maximum
// of that and its previous value, which must not be negative. NaN if x has a NaN, or that value is
// one.
void amax(Ctx& ctx, const Tensor& out, const ConstTensor& x, bool accumulate);

// scale (N) from amax (N), all float32, of N tensors:
//   scale = max / amax / 2^margin,   max the largest number of the format, |margin| < 100
// An infinite result becomes the largest float32. An amax of 0 or a non-finite one gives 1.
void scale_from_amax(Ctx& ctx, const Tensor& scale, const ConstTensor& amax, Float8Format format,
                     int margin);

// Delayed scaling of N tensors. history (N, H), newest first, becomes [amax, history without its
// last]. scale (N) becomes the formula above for the largest amax in the new history, and is
// unchanged if that is 0. A tensor with a non-finite amax keeps history and scale: its step is
// skipped. Call it once per step, after the step's amax is known: the scale is for the next step.
void update_delayed_scale(Ctx& ctx, const Tensor& scale, const Tensor& history,
                          const ConstTensor& amax, Float8Format format, int margin);

// Quantizes x, of any shape, with one scale (1) float32; codes has x's shape, inverse is (1).
void quantize_float8(Ctx& ctx, const Tensor& codes, const Tensor& inverse, const ConstTensor& x,
                     const ConstTensor& scale, Float8Format format);

// Quantizes every group of x (R, C) with its own scale, max / amax of the group (1 if that amax is
// 0 or not finite). scaling: kRowGroup or kBlock.
void quantize_float8_groups(Ctx& ctx, const Tensor& codes, const Tensor& inverse,
                            const ConstTensor& x, Float8Format format, Float8Scaling scaling);

// Quantizes the transpose of x (R, C): codes (C, R), inverse and scaling as for a (C, R) tensor.
// scale (1) for kTensor, else absent: every group has its own scale.
void quantize_float8_transposed(Ctx& ctx, const Tensor& codes, const Tensor& inverse,
                                const ConstTensor& x, const ConstTensor& scale, Float8Format format,
                                Float8Scaling scaling);

// y = inverse * code, computed in float32 and rounded once. For kTensor any shape, else (R, C).
void dequantize_float8(Ctx& ctx, const Tensor& y, const ConstTensor& codes,
                       const ConstTensor& inverse, Float8Format format, Float8Scaling scaling);

}  // namespace trireme
