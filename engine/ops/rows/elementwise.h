// Elementwise operations: add, scale, dropout, casts, fills. Contiguous tensors, of equal shape
// unless noted.
#pragma once

#include "engine/ops/context.h"

namespace trireme {

// y = a + b; y may alias either. One float dtype.
void add(Ctx& ctx, const Tensor& y, const ConstTensor& a, const ConstTensor& b);

// Rounding of a scalar factor.
//   kTensor   to the tensor's dtype, like a one-element tensor of that dtype
//   kProduct  to the dtype of the multiplication (float32 for 16-bit types), like a Python scalar
//             in PyTorch
enum class FactorRounding { kTensor, kProduct };

// y = factor * x; y may alias x. One float dtype.
void scale(Ctx& ctx, const Tensor& y, const ConstTensor& x, double factor,
           FactorRounding rounding = FactorRounding::kTensor);

// y = x between any two float dtypes, rounded to nearest even.
void cast(Ctx& ctx, const Tensor& y, const ConstTensor& x);

// y = 0, any dtype.
void fill_zero(Ctx& ctx, const Tensor& y);

// y[t, c] = 0 unless ranges[t, 0] <= c < ranges[t, 1]. Elements inside the ranges are unchanged.
//   y (T, C) any float dtype   ranges (T, 2) int32
void keep_columns(Ctx& ctx, const Tensor& y, const ConstTensor& ranges);

// Dropout (Srivastava et al. 2014): y = (keep ? x / (1 - p) : 0) [+ residual], 0 <= p < 1.
//   y, x, residual  (T, C)  one float dtype; y may alias x or residual; residual is optional
//   rows            (T)     int64: global token index; not read if p = 0
// Element (t, c) is kept iff uniform(word rows[t] * N + first + c of the key) >= p, where x holds
// columns [first, first + C) of N = part.total: the mask does not depend on the layout of ranks.
// The gradient with respect to x is the same function of dy, without residual.
struct DropoutPart {
  int64_t first = 0, total = 0;  // total 0: x holds all columns
};
void dropout(Ctx& ctx, const Tensor& y, const ConstTensor& x, const ConstTensor& residual,
             const ConstTensor& rows, double p, const RandomKey& key, const DropoutPart& part = {});

}  // namespace trireme
