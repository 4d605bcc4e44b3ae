// Rows of a 16-bit float type to contiguous float32 and back.
#pragma once

#include "engine/core/dtype.h"
#include "engine/ops/cpu/isa.h"

namespace trireme::cpu {

// T is bf16 or f16.
template <class T>
struct ConvertRows {
  int64_t rows = 0, columns = 0;
  T* narrow = nullptr;  // (rows, columns) with row stride `narrow_stride`
  int64_t narrow_stride = 0;
  float* wide = nullptr;  // (rows, columns), contiguous
};

// wide = narrow; exact
TRIREME_CPU_KERNEL(widen_rows, (const ConvertRows<T>& a, int threads))
// narrow = wide, rounded to nearest even
TRIREME_CPU_KERNEL(narrow_rows, (const ConvertRows<T>& a, int threads))

}  // namespace trireme::cpu
