// Kernel of engine/ops/rotary.h. The positions have been checked.
#pragma once

#include "engine/core/dtype.h"
#include "engine/ops/cpu/isa.h"

namespace trireme::cpu {

template <class T>
struct Rotary {
  T* x;
  const compute_t<T>* cos_sin;  // (P, width)
  const int32_t* positions;
  int64_t entries;  // P
  int64_t rows, heads, width;
  int64_t row_stride, head_stride;
  bool interleaved;        // pairs of neighbours, else halves
  compute_t<T> direction;  // 1 or -1: the sign of the angle
};

TRIREME_CPU_KERNEL(rotary, (const Rotary<T>& a, int threads))

}  // namespace trireme::cpu
