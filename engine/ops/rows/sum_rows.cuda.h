// Kernel of engine/ops/rows/sum_rows.h on a GPU.
#pragma once

#include "engine/core/float16.h"
#include "engine/device/context.h"

namespace trireme::cuda {

inline constexpr size_t kMaxTerms = 64;  // per launch

// Arguments of one launch: [sum +] terms[0] + terms[1] + ... The last launch writes y, earlier ones
// write sum.
template <class T>
struct SumRows {
  T* y;               // null: this is not the last launch
  int64_t y_stride;   // elements between rows of y
  compute_t<T>* sum;  // (rows, columns); null: this is the only launch
  bool accumulates;   // not the first launch: adds to sum
  const T* terms[kMaxTerms];
  int64_t strides[kMaxTerms];  // elements between rows of each term
  int count;                   // terms of this launch, at least 1
  int64_t rows, columns;
};

template <class T>
TRIREME_CUDA_DECL void sum_rows(Context& gpu, const SumRows<T>& args);

}  // namespace trireme::cuda
