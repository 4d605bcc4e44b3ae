// Kernels of engine/ops/copy_rows.h on a GPU.
#pragma once

#include <cstddef>

#include "engine/device/context.h"
#include "engine/ops/cpu/convert_rows.h"

namespace trireme::cuda {

// Sizes and strides in bytes. A row outside the limits is not copied.
struct CopyRows {
  std::byte* y;
  const std::byte* x;
  const int32_t *y_rows, *x_rows;  // null: 0, 1, ...
  int64_t rows, bytes;             // rows to copy, bytes of each
  int64_t y_stride, x_stride;
  int64_t y_limit, x_limit;  // number of rows
};
TRIREME_CUDA_DECL void copy_rows(Context& gpu, const CopyRows& a);

// narrow = wide, rounded to nearest even
template <class T>
TRIREME_CUDA_DECL void narrow_rows(Context& gpu, const cpu::ConvertRows<T>& a);

}  // namespace trireme::cuda
