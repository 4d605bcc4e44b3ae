// Rows of a 16-bit float type to contiguous float32 and back.
#pragma once

#include <cstdint>

#include "engine/ops/cpu/isa.h"

namespace trireme {
struct bf16;
struct f16;
}  // namespace trireme

namespace trireme::cpu {

// T is trireme::bf16 or trireme::f16, here only a tag: kernels see the bits.
template <class T>
struct ConvertRows {
  int64_t rows = 0, columns = 0;
  uint16_t* narrow = nullptr;  // (rows, columns) with row stride `narrow_stride`
  int64_t narrow_stride = 0;
  float* wide = nullptr;  // (rows, columns), contiguous
};

// wide = narrow; exact
TRIREME_CPU_KERNEL(widen_rows, (const ConvertRows<T>& a, int threads))
// narrow = wide, rounded to nearest even
TRIREME_CPU_KERNEL(narrow_rows, (const ConvertRows<T>& a, int threads))

}  // namespace trireme::cpu
