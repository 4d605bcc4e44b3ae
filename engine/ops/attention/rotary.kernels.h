// Kernel of engine/ops/attention/rotary.h. The positions of CPU kernels have been checked.
#pragma once

#include "engine/core/device_memory.h"
#include "engine/core/dtype.h"
#include "engine/ops/backend/isa.h"

namespace trireme::cpu {

template <class T>
struct Rotary {
  T* x;
  const compute_t<T>* cos_sin;  // (P, width)
  const int32_t* positions;     // (rows)
  int64_t entries;              // P
  int64_t rows, heads, width;
  int64_t row_stride, head_stride;  // in elements
  bool interleaved;                 // pairs of neighbours, else halves
  compute_t<T> direction;           // 1 or -1: the sign of the angle
};

TRIREME_CPU_KERNEL(rotary, (const Rotary<T>& a, int threads))

}  // namespace trireme::cpu

// GPU kernel. A position outside the table gives NaN in its row.
namespace trireme::cuda {

struct Context;  // engine/device/context.h

template <class T>
TRIREME_CUDA_DECL void rotary(Context& gpu, const cpu::Rotary<T>& a);

}  // namespace trireme::cuda
