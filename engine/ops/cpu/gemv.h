// y = x w^T for up to four rows of x and a weight as stored.
//
// Products with few rows only read the weight, so the one thing that counts is to stream it: each
// thread walks its share of the weight's rows one after the other (several rows at once is slower:
// the prefetcher follows one stream best) and multiplies each with every row of x.
#pragma once

#include "engine/core/dtype.h"
#include "engine/ops/cpu/isa.h"

namespace trireme::cpu {

inline constexpr int64_t kGemvMaxRows = 4;

// T is float or bf16.
template <class T>
struct Gemv {
  int64_t m = 0, n = 0, k = 0;  // m <= kGemvMaxRows
  const T* w = nullptr;         // (n, k) with row stride `w_stride`
  int64_t w_stride = 0;
  const float* x = nullptr;  // (m, k) with row stride `x_stride`
  int64_t x_stride = 0;
  void* y = nullptr;  // (m, n) with row stride `y_stride`
  int64_t y_stride = 0;
  bool y_float32 = true;       // else T
  const void* bias = nullptr;  // (n) of y's type, or null
  float alpha = 1.0f;
  bool accumulate = false;
};

TRIREME_CPU_KERNEL(gemv, (const Gemv<T>& a, int threads))

}  // namespace trireme::cpu
