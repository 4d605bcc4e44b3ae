// Kernels of engine/ops/rows/copy_rows.h, and conversion of rows of a 16-bit float type to
// contiguous float32.
#pragma once

#include <cstddef>

#include "engine/core/device_memory.h"
#include "engine/core/dtype.h"
#include "engine/ops/backend/isa.h"

namespace trireme::cpu {

// T is bf16 or f16.
template <class T>
struct ConvertRows {
  int64_t rows = 0, columns = 0;
  T* narrow = nullptr;        // (rows, columns)
  int64_t narrow_stride = 0;  // elements between rows of `narrow`
  float* wide = nullptr;      // (rows, columns), contiguous
};

// wide = narrow; exact
TRIREME_CPU_KERNEL(widen_rows, (const ConvertRows<T>& a, int threads))
// narrow = wide, rounded to nearest even
TRIREME_CPU_KERNEL(narrow_rows, (const ConvertRows<T>& a, int threads))

}  // namespace trireme::cpu

// GPU kernels.
namespace trireme::cuda {

struct Context;  // engine/device/context.h

// A copy is skipped if its row of y or of x is outside the limits.
struct CopyRows {
  std::byte* y;
  const std::byte* x;
  const int32_t *y_rows, *x_rows;  // (rows); null: 0, 1, ...
  int64_t rows, bytes;             // rows to copy, bytes of each
  int64_t y_stride, x_stride;      // bytes between rows
  int64_t y_limit, x_limit;        // number of rows of y and of x
};
TRIREME_CUDA_DECL void copy_rows(Context& gpu, const CopyRows& a);

// narrow = wide, rounded to nearest even
template <class T>
TRIREME_CUDA_DECL void narrow_rows(Context& gpu, const cpu::ConvertRows<T>& a);

}  // namespace trireme::cuda
