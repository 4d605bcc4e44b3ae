// Kernel of engine/ops/rows/fill_normal.h on a GPU.
#pragma once

#include "engine/core/element_index.h"
#include "engine/core/float16.h"
#include "engine/core/random.h"
#include "engine/device/context.h"

namespace trireme::cuda {

template <class T>
struct FillNormal {
  T* y;  // (n)
  int64_t n;
  RandomKey key;
  double deviation;
  ElementIndex index;
};

template <class T>
TRIREME_CUDA_DECL void fill_normal(Context& gpu, const FillNormal<T>& args);

}  // namespace trireme::cuda
