// Kernels of engine/ops/sampling/sample.h and row_order.h: passes over one row of logits l.
#pragma once

#include <cstdint>

#include "engine/ops/backend/isa.h"

namespace trireme::cpu {

template <class T>
struct RowRange {
  T largest, smallest;  // smallest: of those above -infinity; +infinity if there is none
};
// Largest and smallest logit; NaN is ignored. largest: -infinity if there is no other.
TRIREME_CPU_KERNEL(row_range, (RowRange<T> * range, const T* row, int64_t n))

// Distance (largest - l) / temperature above which a token has weight 0. The weights sum to at
// least 1, and e^-50 = 2e-22: even 500,000 such tokens together are below the rounding error of
// that sum, 2^-53.
inline constexpr double kNegligibleDistance = 50;

template <class T>
struct RowWeights {
  const T* row;  // (n)
  int64_t n;
  double largest, temperature;  // largest: the largest logit; temperature > 0
  double* weights;              // (n) exp(-distance); null: only the sum is computed
  double* sum;                  // NaN if the row has NaN or its largest logit is not finite
};
TRIREME_CPU_KERNEL(row_weights, (const RowWeights<T>& a))

// A token's key is |largest - l - centre| (OrderedRow in row_order.h).
template <class T>
struct RowKeys {
  const T* row;     // (n)
  double* weights;  // (n)
  int64_t n;
  double largest, centre;
};
// bin[i] = min(key * per_unit, last), rounded down, or left_out if the weight is 0
TRIREME_CPU_KERNEL(row_bins, (const RowKeys<T>& a, double per_unit, uint16_t last,
                              uint16_t left_out, uint16_t* bin))
// Sets the weights of tokens with a larger key, or an equal key and a smaller l, to 0. If key and l
// are both equal, the weight is kept only with keeps_ties.
TRIREME_CPU_KERNEL(drop_above, (const RowKeys<T>& a, double key, T logit, bool keeps_ties))
// *sum = sum of weight * (largest - l) over tokens whose weight is above 0; a.centre is not read
TRIREME_CPU_KERNEL(row_moment, (const RowKeys<T>& a, double* sum))

}  // namespace trireme::cpu
