// C = alpha A B [+ C] [+ bias] for float64, which the library does not multiply, in cache blocks
// (Goto and van de Geijn, "Anatomy of high-performance matrix multiplication", 2008).
//
// A and B are read through a row and a column stride, so transposes need no copy. Every element of
// C is summed over k in a fixed order, for any number of threads.
#pragma once

#include <cstdint>

#include "engine/ops/backend/isa.h"

namespace trireme::cpu {

// One block of A stays in a core's L2, one of B in the shared cache.
inline constexpr int64_t kBlockM = 96, kBlockN = 960, kBlockK = 256;

// T is double. Strides are in elements.
template <class T>
struct BlockedGemm {
  int64_t m = 0, n = 0, k = 0;
  const T* a = nullptr;  // (m, k)
  int64_t a_row = 0, a_column = 0;
  const T* b = nullptr;  // (k, n)
  int64_t b_row = 0, b_column = 0;
  T* c = nullptr;  // (m, n), unit column stride
  int64_t c_row = 0;
  const T* bias = nullptr;  // (n) or null
  T alpha = 1;
  bool accumulate = false;
  T* scratch = nullptr;  // kBlockN * kBlockK + threads * kBlockM * kBlockK elements
};

TRIREME_CPU_KERNEL(gemm_blocked, (const BlockedGemm<T>& g, int threads))

}  // namespace trireme::cpu
