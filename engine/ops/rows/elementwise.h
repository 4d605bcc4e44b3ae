// Elementwise operations: add, scale, dropout, casts, fills. Contiguous tensors of equal shape.
#pragma once

#include "engine/ops/context.h"

namespace trireme {

// y = a + b; y may alias either. One float dtype.
void add(Ctx& ctx, const Tensor& y, const ConstTensor& a, const ConstTensor& b);

// Rounding of a factor: to the tensor's dtype, as if it were a one-element tensor of that type, or
// to the type that products are computed in (float32 for 16-bit types), like a Python number in
// PyTorch.
enum class FactorRounding { kTensor, kProduct };

// y = factor * x; y may alias x. One float dtype.
void scale(Ctx& ctx, const Tensor& y, const ConstTensor& x, double factor,
           FactorRounding rounding = FactorRounding::kTensor);

// y = x, between any two float dtypes (rounded to nearest even).
void cast(Ctx& ctx, const Tensor& y, const ConstTensor& x);

void fill_zero(Ctx& ctx, const Tensor& y);

// y[t, c] = 0 unless ranges[t, 0] <= c < ranges[t, 1]. y (T, C) of a float dtype, ranges (T, 2)
// int32.
void keep_columns(Ctx& ctx, const Tensor& y, const ConstTensor& ranges);

// Dropout (Srivastava et al. 2014) of rows: y = keep ? x / (1 - p) : 0, [+ residual].
// Element (t, c) of the (T, C) input is kept iff uniform(word rows[t] * C + c of the key) >= p:
// `rows` (T) int64 holds each token's global index, so the mask does not depend on the layout.
// p = 0 copies. y may alias x or residual. residual is optional.
// part: x holds columns [first, first + C) of rows of `total`, and C above is `total`.
// The backward of y with respect to x is the same function applied to dy without a residual.
struct DropoutPart {
  int64_t first = 0, total = 0;  // total 0: x holds all columns
};
void dropout(Ctx& ctx, const Tensor& y, const ConstTensor& x, const ConstTensor& residual,
             const ConstTensor& rows, double p, const RandomKey& key, const DropoutPart& part = {});

}  // namespace trireme
