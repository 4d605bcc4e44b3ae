#include "engine/ops/backend/elements.cuda.h"
#include "engine/ops/norm/dora_magnitude.kernels.h"
#include "engine/ops/rows/column_sums.cuda.h"

namespace trireme::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kRows =
    4;  // of the weight that a block of threads has at once: each reads a's columns for all
constexpr int kSumThreads = 128;

// A thread block takes kRows rows, each thread N columns of them at a time. b is read from cache,
// the same element by all threads.
template <class T, int N>
__global__ void __launch_bounds__(kThreads) row_squares_kernel(cpu::AdaptedRowSquares<T> a) {
  begin_kernel();
  using F = compute_t<T>;
  __shared__ F shared[kWarp];
  const int64_t packs = a.columns / N;
  int64_t rows[kRows];  // after the last row the last one again
#pragma unroll
  for (int j = 0; j < kRows; ++j) {
    const int64_t row = static_cast<int64_t>(blockIdx.x) * kRows + j;
    rows[j] = row < a.rows ? row : a.rows - 1;
  }
  F squares[kRows] = {};
  for (int64_t p = threadIdx.x; p < packs; p += kThreads) {
    F v[kRows][N];
#pragma unroll
    for (int j = 0; j < kRows; ++j) {
      const Pack<T, N> w = load_pack<T, N>(a.w, rows[j] * packs + p);
#pragma unroll
      for (int i = 0; i < N; ++i) v[j][i] = to_compute(w.v[i]);
    }
    for (int64_t k = 0; k < a.rank; ++k) {
      const Pack<T, N> other = load_pack<T, N>(a.a, k * packs + p);
#pragma unroll
      for (int j = 0; j < kRows; ++j) {
        const F factor = a.scale * to_compute(a.b[rows[j] * a.rank + k]);
#pragma unroll
        for (int i = 0; i < N; ++i) v[j][i] += factor * to_compute(other.v[i]);
      }
    }
#pragma unroll
    for (int j = 0; j < kRows; ++j)
#pragma unroll
      for (int i = 0; i < N; ++i) squares[j] += v[j][i] * v[j][i];
  }
#pragma unroll
  for (int j = 0; j < kRows; ++j) {
    const F total = block_sum(squares[j], shared);
    if (threadIdx.x == 0) a.squares[rows[j]] = total;
  }
}

// For doubles one call, while a root and a quotient would be two: around calls registers are
// scarce.
__device__ inline float inverse_length(float squares) { return inverse_root(squares); }
__device__ inline double inverse_length(double squares) { return rsqrt(squares); }

template <class F>
__device__ F gain(F m, F squares) {
  return squares > F{0} ? m * inverse_length(squares) : F{1};
}

template <class T, int N>
struct ScaleOutputs {
  cpu::ScaleOutputs<T> a;
  __device__ void operator()(int64_t item) const {
    using F = compute_t<T>;
    const int64_t packs = a.columns / N, r = quotient(item, packs), p = item - r * packs;
    F g[N];
#pragma unroll
    for (int i = 0; i < N; ++i)
      g[i] = (a.m == nullptr ? F{1} : gain(to_compute(a.m[p * N + i]), a.squares[p * N + i])) +
             a.shift;
    Pack<T, N> e = load_pack<T, N>(a.x + r * a.x_row, p);
    Pack<T, N> before{};
    if (a.accumulate) before = load_pack<T, N>(a.y + r * a.y_row, p);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      F value = g[i] * to_compute(e.v[i]);
      if (a.accumulate) value += to_compute(before.v[i]);
      e.v[i] = static_cast<T>(value);
    }
    store_pack<T, N>(a.y + r * a.y_row, p, e);
  }
};

// Block (x, y) adds up row block y of the packs of columns that start at x * kSumThreads.
template <class T, int N>
__global__ void __launch_bounds__(kSumThreads)
    magnitude_backward_kernel(cpu::MagnitudeBackward<T> a) {
  begin_kernel();
  using F = compute_t<T>;
  const int64_t packs = a.columns / N;
  const int64_t p = static_cast<int64_t>(blockIdx.x) * kSumThreads + threadIdx.x;
  if (p >= packs) return;
  Pack<F, N> total{};
  const int64_t last = first_row(blockIdx.y + 1, a.blocks, a.rows);
#pragma unroll 2
  for (int64_t r = first_row(blockIdx.y, a.blocks, a.rows); r < last; ++r) {
    const Pack<T, N> d = load_pack<T, N>(a.dy + r * a.dy_row, p);
    const Pack<T, N> u = load_pack<T, N>(a.u + r * a.u_row, p);
#pragma unroll
    for (int i = 0; i < N; ++i) total.v[i] += to_compute(d.v[i]) * to_compute(u.v[i]);
  }
  store_pack<F, N>(a.partial, blockIdx.y * packs + p, total);
}

// Sums the blocks of a column in order.
template <class T>
struct MagnitudeSums {
  cpu::MagnitudeBackward<T> a;
  __device__ void operator()(int64_t c) const {
    using F = compute_t<T>;
    F total = 0;
    for (int64_t b = 0; b < a.blocks; ++b) total += a.partial[b * a.columns + c];
    const F squares = a.squares[c];
    total = squares > F{0} ? total * inverse_length(squares) : F{0};
    a.dm[c] = a.accumulate ? a.dm[c] + total : total;
  }
};

}  // namespace

template <class T>
void adapted_row_squares(Context& gpu, const cpu::AdaptedRowSquares<T>& a) {
  with_pack<T>(
      a.columns,
      [&]<int N>() {
        launch(gpu, "adapted_row_squares", row_squares_kernel<T, N>,
               {.blocks = {blocks_for(a.rows, kRows)}, .threads = kThreads}, a);
      },
      a.w, a.a);
}

template <class T>
void scale_outputs(Context& gpu, const cpu::ScaleOutputs<T>& a) {
  // A power of two divides the OR of these exactly if it divides each of them.
  with_pack<T>(
      a.columns | a.x_row | a.y_row,
      [&]<int N>() {
        for_each_item(gpu, "scale_outputs", a.rows * (a.columns / N), ScaleOutputs<T, N>{a});
      },
      a.x, static_cast<const T*>(a.y));
}

template <class T>
void magnitude_backward(Context& gpu, const cpu::MagnitudeBackward<T>& a) {
  with_pack<T>(
      a.columns | a.dy_row | a.u_row,
      [&]<int N>() {
        launch(
            gpu, "magnitude_backward", magnitude_backward_kernel<T, N>,
            {.blocks = {blocks_for(a.columns / N, kSumThreads), a.blocks}, .threads = kSumThreads},
            a);
      },
      a.dy, a.u);
  for_each_item(gpu, "magnitude_sums", a.columns, MagnitudeSums<T>{a});
}

#define TRIREME_INSTANTIATE(T)                                                      \
  template void adapted_row_squares<T>(Context&, const cpu::AdaptedRowSquares<T>&); \
  template void scale_outputs<T>(Context&, const cpu::ScaleOutputs<T>&);            \
  template void magnitude_backward<T>(Context&, const cpu::MagnitudeBackward<T>&);
TRIREME_INSTANTIATE(double)
TRIREME_INSTANTIATE(float)
TRIREME_INSTANTIATE(bf16)
TRIREME_INSTANTIATE(f16)

}  // namespace trireme::cuda
