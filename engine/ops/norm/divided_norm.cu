#include <algorithm>

#include "engine/ops/backend/elements.cuda.h"
#include "engine/ops/norm/divided_norm.kernels.h"
#include "engine/ops/rows/column_sums.cuda.h"

namespace trireme::cuda {
namespace {

constexpr int kMaxThreads = 256;

// Threads of a block for a row of `packs` packs.
int threads_per_row(int64_t packs) {
  return static_cast<int>(std::clamp<int64_t>(round_up(packs, kWarp), kWarp, kMaxThreads));
}

template <class T>
__device__ T* row_of(const cpu::StridedRows<T>& rows, int64_t t) {
  return rows.data + t * rows.stride;
}

// A thread block takes a row, N elements per thread at a time.
template <class T, int N>
__global__ void __launch_bounds__(kMaxThreads) square_sums_kernel(cpu::SquareSums<T> a) {
  begin_kernel();
  using F = compute_t<T>;
  __shared__ F shared[kWarp];
  const T* const x = row_of(a.x, blockIdx.x);
  F squares = 0;
  for (int64_t p = threadIdx.x; p < a.columns / N; p += blockDim.x) {
    const Pack<T, N> e = load_pack<T, N>(x, p);
#pragma unroll
    for (int i = 0; i < N; ++i) squares += to_compute(e.v[i]) * to_compute(e.v[i]);
  }
  squares = block_sum(squares, shared);
  if (threadIdx.x == 0) a.sums[blockIdx.x] = squares;
}

template <class T, int N>
__global__ void __launch_bounds__(kMaxThreads) forward_kernel(cpu::DividedNormForward<T> a) {
  begin_kernel();
  using F = compute_t<T>;
  const T* const x = row_of(a.x, blockIdx.x);
  T* const y = row_of(a.y, blockIdx.x);
  const F rstd = inverse_root(a.sums[blockIdx.x] / a.width + a.eps);
  if (threadIdx.x == 0) a.rstd[blockIdx.x] = rstd;
  for (int64_t p = threadIdx.x; p < a.columns / N; p += blockDim.x) {
    Pack<T, N> e = load_pack<T, N>(x, p);
    const Pack<T, N> w = load_pack<T, N>(a.w, p);
#pragma unroll
    for (int i = 0; i < N; ++i)
      e.v[i] = static_cast<T>(to_compute(e.v[i]) * rstd * to_compute(w.v[i]));
    store_pack<T, N>(y, p, e);
  }
}

// A thread block takes a block of rows and sums their part of dw in its row of `partial`, where
// every column belongs to one thread.
template <class T, int N>
__global__ void __launch_bounds__(kMaxThreads) weights_kernel(cpu::DividedNormBackwardWeight<T> a) {
  begin_kernel();
  using F = compute_t<T>;
  __shared__ F shared[kWarp];
  const int64_t packs = a.columns / N;
  F* const dw = a.partial + blockIdx.x * a.columns;
  for (int64_t p = threadIdx.x; p < packs; p += blockDim.x) store_pack<F, N>(dw, p, Pack<F, N>{});
  const int64_t last = first_row(blockIdx.x + 1, a.blocks, a.rows);
  for (int64_t r = first_row(blockIdx.x, a.blocks, a.rows); r < last; ++r) {
    const T* const x = row_of(a.x, r);
    const T* const dy = row_of(a.dy, r);
    const F rstd = a.rstd[r];
    F dot = 0;
    for (int64_t p = threadIdx.x; p < packs; p += blockDim.x) {
      const Pack<T, N> d = load_pack<T, N>(dy, p), e = load_pack<T, N>(x, p);
      const Pack<T, N> w = load_pack<T, N>(a.w, p);
      Pack<F, N> sums = load_pack<F, N>(dw, p);
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const F dn = to_compute(d.v[i]) * (to_compute(e.v[i]) * rstd);
        dot += dn * to_compute(w.v[i]);
        sums.v[i] += dn;
      }
      store_pack<F, N>(dw, p, sums);
    }
    dot = block_sum(dot, shared);
    if (threadIdx.x == 0) a.dots[r] = dot;
  }
}

template <class T, int N>
__global__ void __launch_bounds__(kMaxThreads) backward_kernel(cpu::DividedNormBackwardInput<T> a) {
  begin_kernel();
  using F = compute_t<T>;
  const T* const x = row_of(a.x, blockIdx.x);
  const T* const dy = row_of(a.dy, blockIdx.x);
  T* const dx = row_of(a.dx, blockIdx.x);
  const F rstd = a.rstd[blockIdx.x], mean = a.dots[blockIdx.x] / a.width;
  for (int64_t p = threadIdx.x; p < a.columns / N; p += blockDim.x) {
    Pack<T, N> d = load_pack<T, N>(dy, p);
    const Pack<T, N> e = load_pack<T, N>(x, p), w = load_pack<T, N>(a.w, p);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const F n = to_compute(e.v[i]) * rstd;
      d.v[i] = static_cast<T>(rstd * (to_compute(d.v[i]) * to_compute(w.v[i]) - n * mean));
    }
    store_pack<T, N>(dx, p, d);
  }
}

}  // namespace

// In each with_pack(), a power of two divides the OR exactly if it divides each operand.
template <class T>
void square_sums(Context& gpu, const cpu::SquareSums<T>& a) {
  with_pack<T>(
      a.columns | a.x.stride,
      [&]<int N>() {
        launch(gpu, "square_sums", square_sums_kernel<T, N>,
               {.blocks = {a.rows}, .threads = threads_per_row(a.columns / N)}, a);
      },
      a.x.data);
}

template <class T>
void divided_norm_forward(Context& gpu, const cpu::DividedNormForward<T>& a) {
  with_pack<T>(
      a.columns | a.x.stride | a.y.stride,
      [&]<int N>() {
        launch(gpu, "divided_norm_forward", forward_kernel<T, N>,
               {.blocks = {a.rows}, .threads = threads_per_row(a.columns / N)}, a);
      },
      a.x.data, static_cast<const T*>(a.y.data), a.w);
}

template <class T>
void divided_norm_backward_weight(Context& gpu, const cpu::DividedNormBackwardWeight<T>& a) {
  with_pack<T>(
      a.columns | a.x.stride | a.dy.stride,
      [&]<int N>() {
        launch(gpu, "divided_norm_backward_weight", weights_kernel<T, N>,
               {.blocks = {a.blocks}, .threads = threads_per_row(a.columns / N)}, a);
      },
      a.x.data, a.dy.data, a.w, reinterpret_cast<const T*>(a.partial));
  column_sums(gpu, "divided_norm_weight_sums", a.dw, a.partial, a.blocks, a.columns, a.accumulate);
}

template <class T>
void divided_norm_backward_input(Context& gpu, const cpu::DividedNormBackwardInput<T>& a) {
  with_pack<T>(
      a.columns | a.x.stride | a.dy.stride | a.dx.stride,
      [&]<int N>() {
        launch(gpu, "divided_norm_backward_input", backward_kernel<T, N>,
               {.blocks = {a.rows}, .threads = threads_per_row(a.columns / N)}, a);
      },
      a.x.data, a.dy.data, static_cast<const T*>(a.dx.data), a.w);
}

#define TRIREME_INSTANTIATE(T)                                                             \
  template void square_sums<T>(Context&, const cpu::SquareSums<T>&);                       \
  template void divided_norm_forward<T>(Context&, const cpu::DividedNormForward<T>&);      \
  template void divided_norm_backward_weight<T>(Context&,                                  \
                                                const cpu::DividedNormBackwardWeight<T>&); \
  template void divided_norm_backward_input<T>(Context&, const cpu::DividedNormBackwardInput<T>&);
TRIREME_INSTANTIATE(double)
TRIREME_INSTANTIATE(float)
TRIREME_INSTANTIATE(bf16)
TRIREME_INSTANTIATE(f16)

}  // namespace trireme::cuda
