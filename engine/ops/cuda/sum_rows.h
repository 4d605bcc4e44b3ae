// Kernel of engine/ops/sum_rows.h on a GPU.
#pragma once

#include "engine/core/float16.h"
#include "engine/device/context.h"

namespace trireme::cuda {

inline constexpr size_t kMostTerms = 64;  // ranks of one group that add up something by themselves

template <class T>
struct SumRows {
  T* y;
  int64_t y_stride;  // elements between rows
  const T* terms[kMostTerms];
  int64_t strides[kMostTerms];
  int count;
  int64_t rows, columns;
};

template <class T>
TRIREME_CUDA_DECL void sum_rows(Context& gpu, const SumRows<T>& args);

}  // namespace trireme::cuda
