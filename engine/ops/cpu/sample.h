// Kernels of engine/ops/sample.h and row_order.h: passes over one row of logits l.
#pragma once

#include <cstdint>

#include "engine/ops/cpu/isa.h"

namespace trireme::cpu {

template <class T>
struct RowRange {
  T largest, smallest;  // smallest above -infinity; +infinity if there is none
};
// NaN is ignored.
TRIREME_CPU_KERNEL(row_range, (RowRange<T> * range, const T* row, int64_t n))

// A token whose distance (largest - l) / temperature is above this has weight 0: e^-50 of every
// token of any vocabulary are less than a rounding error of the sum, which is at least 1.
inline constexpr double kNegligibleDistance = 50;

template <class T>
struct RowWeights {
  const T* row;
  int64_t n;
  double largest, temperature;
  double* weights;  // (n) exp(-distance); absent: only the sum
  double* sum;      // NaN if the row has NaN or its largest logit is not finite
};
TRIREME_CPU_KERNEL(row_weights, (const RowWeights<T>& a))

// A token's key is |largest - l - centre|.
template <class T>
struct RowKeys {
  const T* row;
  double* weights;
  int64_t n;
  double largest, centre;
};
// bin[i] = min(key per_unit, last); left_out if the weight is 0
TRIREME_CPU_KERNEL(row_bins, (const RowKeys<T>& a, double per_unit, uint16_t last,
                              uint16_t left_out, uint16_t* bin))
// weights = 0 if the key is above `key`, and if it is equal and l below `logit`, or equal to it and
// keeps_ties is false
TRIREME_CPU_KERNEL(drop_above, (const RowKeys<T>& a, double key, T logit, bool keeps_ties))
// *sum = sum of weight (largest - l) over tokens whose weight is above 0
TRIREME_CPU_KERNEL(row_moment, (const RowKeys<T>& a, double* sum))

}  // namespace trireme::cpu
