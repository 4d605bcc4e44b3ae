#include "engine/ops/backend/kernel.cuda.h"
#include "engine/ops/backend/math.cuda.h"
#include "engine/ops/compression/orthonormal_rows.kernels.h"

namespace trireme::cuda {
namespace {

constexpr int kThreads = 1024;

template <class T>
__device__ T dot(const T* a, const T* b, int64_t n, T* shared) {
  T total = 0;
  for (int64_t i = threadIdx.x; i < n; i += kThreads) total += a[i] * b[i];
  return block_sum(total, shared);
}

template <class T>
__device__ void scale(T* x, T factor, int64_t n) {
  for (int64_t i = threadIdx.x; i < n; i += kThreads) x[i] = factor == 0 ? T(0) : x[i] * factor;
}

// One thread block: the rows depend on each other, and there are few. A thread reads and writes the
// same columns in all steps.
template <class T>
__global__ void __launch_bounds__(kThreads) orthonormal_kernel(T* y, int64_t rows, int64_t n) {
  begin_kernel();
  __shared__ T shared[kWarp];
  for (int64_t i = 0; i < rows; ++i) {
    T* const row = y + i * n;
    T largest = 0;
    for (int64_t k = threadIdx.x; k < n; k += kThreads) {
      const T magnitude = row[k] < 0 ? -row[k] : row[k];
      largest = magnitude > largest ? magnitude : largest;
    }
    scale(row, cpu::unit_factor(block_max(largest, shared)), n);
    const T before = dot(row, row, n, shared);
    for (int pass = 0; pass < 2; ++pass)
      for (int64_t j = 0; j < i; ++j) {
        const T factor = dot(row, y + j * n, n, shared);
        for (int64_t k = threadIdx.x; k < n; k += kThreads) row[k] -= factor * y[j * n + k];
      }
    const T after = dot(row, row, n, shared);
    const T factor = after > before * cpu::kDependent<T> ? T(1) / square_root(after) : T(0);
    scale(row, factor, n);
  }
}

// One thread block per row.
template <class T>
__global__ void __launch_bounds__(kThreads) copy_kernel(T* y, const T* x, int64_t n) {
  begin_kernel();
  __shared__ T shared[kWarp];
  const T* const row = x + static_cast<int64_t>(blockIdx.x) * n;
  T kind = 0;  // 1: an element is not 0; 2: one is not finite
  for (int64_t k = threadIdx.x; k < n; k += kThreads) {
    const T own = row[k] - row[k] != 0 ? T(2) : row[k] == 0 ? T(0) : T(1);
    kind = own > kind ? own : kind;
  }
  if (block_max(kind, shared) != 1) return;
  for (int64_t k = threadIdx.x; k < n; k += kThreads)
    y[static_cast<int64_t>(blockIdx.x) * n + k] = row[k];
}

}  // namespace

template <class T>
void orthonormal_rows(Context& gpu, T* y, int64_t rows, int64_t n) {
  launch(gpu, "orthonormal_rows", orthonormal_kernel<T>, {.threads = kThreads}, y, rows, n);
}

template <class T>
void copy_nonzero_rows(Context& gpu, T* y, const T* x, int64_t rows, int64_t n) {
  launch(gpu, "copy_nonzero_rows", copy_kernel<T>, {.blocks = {rows}, .threads = kThreads}, y, x,
         n);
}

#define TRIREME_INSTANTIATE(T)                                       \
  template void orthonormal_rows<T>(Context&, T*, int64_t, int64_t); \
  template void copy_nonzero_rows<T>(Context&, T*, const T*, int64_t, int64_t);
TRIREME_INSTANTIATE(double)
TRIREME_INSTANTIATE(float)

}  // namespace trireme::cuda
