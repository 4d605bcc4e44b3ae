// y = x w^T for one row of x that stays in the first-level cache, and a weight as stored.
//
// The time of such a product is that of reading the weight. Each thread reads its share of the
// weight's rows sequentially, since the prefetcher follows a single stream best. x stays as stored,
// which occupies the least of the cache. (If x does not fit that cache, rereading it takes longer
// than reading the weight: gemm_rows.cpu.h loads it once for several rows of the weight.)
//
// For i < 4, steps (engine/ops/backend/steps.cpu.h) i, i + 4, i + 8, ... have two sums, one for
// each half; steps after the last whole group of 4 are added to the first two sums. The eight sums
// are added in pairs, and the lanes as a tree: y does not depend on the number of threads.
#pragma once

#include "engine/core/dtype.h"
#include "engine/ops/backend/isa.h"

namespace trireme::cpu {

// Maximum size of x that stays in cache, in bytes.
inline constexpr int64_t kGemvBytes = 16 << 10;

// y = alpha x w^T [+ bias] [+ y, with accumulate]. T is float, bf16 or, for gemm_rows.cpu.h, f16.
// Strides are in elements.
template <class T>
struct Gemv {
  int64_t m = 0, n = 0, k = 0;
  const T* w = nullptr;  // (n, k) with row stride `w_stride`
  int64_t w_stride = 0;
  const T* x = nullptr;  // (m, k) with row stride `x_stride`
  int64_t x_stride = 0;
  float* packed_x = nullptr;  // scratch: x as packed by gemm_rows.cpu.h or amx_rows.cpu.h
  void* y = nullptr;          // (m, n) with row stride `y_stride`
  int64_t y_stride = 0;
  bool y_float32 = true;       // else T
  const void* bias = nullptr;  // (n) of y's type, or null
  float alpha = 1.0f;
  bool accumulate = false;
};

// Columns of x as packed by gemm_rows.cpu.h: whole steps of any instruction set, padded with 0.
constexpr int64_t packed_columns(int64_t k) { return (k + 31) / 32 * 32; }

// bfloat16 elements of x (m, k) as packed by amx_rows.cpu.h: tiles of 16 rows by 32 columns.
constexpr int64_t packed_tiles(int64_t m, int64_t k) {
  return (m + 15) / 16 * 16 * packed_columns(k);
}

// a.m is 1; T is float or bf16.
TRIREME_CPU_KERNEL(gemv, (const Gemv<T>& a, int threads))

}  // namespace trireme::cpu
