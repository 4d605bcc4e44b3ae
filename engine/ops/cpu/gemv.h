// y = x w^T for so few rows of x that their sums stay in registers, and a weight as stored.
//
// Such products only read the weight, so the one thing that counts is to stream it: each thread walks its share of
// the weight's rows one after the other (several rows at once is slower: the prefetcher follows one stream best) and
// multiplies each with every row of x.
//
// With V float32 in a register, column j is added to lane j % V of sum (j / V) % 4 of four, those behind the last
// 4 V columns to the first sum; the four are added in order and the lanes as a tree. So a row of y has the same bits
// whatever rows are beside it, and whatever thread computes it.
#pragma once

#include "engine/core/dtype.h"
#include "engine/ops/cpu/isa.h"

namespace trireme::cpu {

inline constexpr int kGemvRows = 3, kGemvRowsOfAvx512 = 6;  // of x, at most
constexpr int64_t gemv_stride(int64_t k) { return (k + 1023) / 1024 * 1024 + 256; }

// T is float, bf16 or f16.
template <class T>
struct Gemv {
  int64_t m = 0, n = 0, k = 0;
  const T* w = nullptr;  // (n, k) with row stride `w_stride`
  int64_t w_stride = 0;
  const T* x = nullptr;  // (m, k) with row stride `x_stride`
  int64_t x_stride = 0;
  float* x32 = nullptr;  // scratch: m rows of gemv_stride(k)
  void* y = nullptr;     // (m, n) with row stride `y_stride`
  int64_t y_stride = 0;
  bool y_float32 = true;       // else T
  const void* bias = nullptr;  // (n) of y's type, or null
  float alpha = 1.0f;
  bool accumulate = false;
};

TRIREME_CPU_KERNEL(gemv, (const Gemv<T>& a, int threads))

}  // namespace trireme::cpu
