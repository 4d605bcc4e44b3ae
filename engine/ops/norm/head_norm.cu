#include "engine/ops/backend/elements.cuda.h"
#include "engine/ops/norm/head_norm.kernels.h"
#include "engine/ops/rows/column_sums.cuda.h"

namespace trireme::cuda {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / kWarp;

template <class T>
__device__ T* vector_of(const cpu::HeadRows<T>& rows, int64_t row, int64_t head) {
  return rows.data + row * rows.row + head * rows.head;
}

// A warp takes a head of a row, N elements per lane at a time; it reads the head twice, the second
// time from cache.
template <class T, int N>
__global__ void __launch_bounds__(kThreads) forward_kernel(cpu::HeadNormForward<T> a) {
  begin_kernel();
  using F = compute_t<T>;
  const int64_t v = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp;
  if (v >= a.rows * a.heads) return;
  const int64_t r = quotient(v, a.heads), h = v - r * a.heads;
  const T* const x = vector_of(a.x, r, h);
  T* const y = vector_of(a.y, r, h);
  const int packs = static_cast<int>(a.width) / N;
  F squares = 0;
  for (int p = lane_of_warp(); p < packs; p += kWarp) {
    const Pack<T, N> e = load_pack<T, N>(x, p);
#pragma unroll
    for (int i = 0; i < N; ++i) squares += to_compute(e.v[i]) * to_compute(e.v[i]);
  }
  const F rstd = inverse_root(warp_sum(squares) / static_cast<F>(a.width) + a.eps);
  if (lane_of_warp() == 0) a.rstd[v] = rstd;
  for (int p = lane_of_warp(); p < packs; p += kWarp) {
    Pack<T, N> e = load_pack<T, N>(x, p);
    const Pack<T, N> w = load_pack<T, N>(a.w, p);
#pragma unroll
    for (int i = 0; i < N; ++i)
      e.v[i] = static_cast<T>(to_compute(e.v[i]) * rstd * (to_compute(w.v[i]) + a.unit));
    store_pack<T, N>(y, p, e);
  }
}

// A thread block takes a block of rows, its warps take their heads in turn. Each warp sums its part
// of dw in its own shared memory, where every column belongs to one lane; then these are added in
// order.
template <class T, int N>
__global__ void __launch_bounds__(kThreads) backward_kernel(cpu::HeadNormBackward<T> a) {
  begin_kernel();
  using F = compute_t<T>;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int packs = static_cast<int>(a.width) / N;
  F* const shared = dynamic_shared<F>();
  F* const dw = shared + warp * a.width;
  for (int p = lane_of_warp(); p < packs; p += kWarp) store_pack<F, N>(dw, p, Pack<F, N>{});
  const F inverse_count = F{1} / static_cast<F>(a.width);
  const int64_t last = first_row(blockIdx.x + 1, a.blocks, a.rows);
  int64_t r = first_row(blockIdx.x, a.blocks, a.rows), h = warp;
  while (true) {
    for (; h >= a.heads; h -= a.heads) ++r;
    if (r >= last) break;
    const T* const x = vector_of(a.x, r, h);
    const T* const dy = vector_of(a.dy, r, h);
    T* const dx = vector_of(a.dx, r, h);
    const F rstd = a.rstd[r * a.heads + h];
    h += kWarps;
    F sum_gn = 0;
    // One iteration for all but the widest heads: unrolled, doubles would not fit the registers.
#pragma unroll 1
    for (int p = lane_of_warp(); p < packs; p += kWarp) {
      const Pack<T, N> d = load_pack<T, N>(dy, p), e = load_pack<T, N>(x, p);
      const Pack<T, N> w = load_pack<T, N>(a.w, p);
      Pack<F, N> sums = load_pack<F, N>(dw, p);
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const F n = to_compute(e.v[i]) * rstd;
        sum_gn += to_compute(d.v[i]) * (to_compute(w.v[i]) + a.unit) * n;
        sums.v[i] += to_compute(d.v[i]) * n;
      }
      store_pack<F, N>(dw, p, sums);
    }
    const F mean_gn = warp_sum(sum_gn) * inverse_count;
#pragma unroll 1
    for (int p = lane_of_warp(); p < packs; p += kWarp) {
      Pack<T, N> d = load_pack<T, N>(dy, p);
      const Pack<T, N> e = load_pack<T, N>(x, p), w = load_pack<T, N>(a.w, p);
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const F n = to_compute(e.v[i]) * rstd;
        const F g = to_compute(d.v[i]) * (to_compute(w.v[i]) + a.unit);
        d.v[i] = static_cast<T>(rstd * (g - n * mean_gn));
      }
      store_pack<T, N>(dx, p, d);
    }
  }
  __syncthreads();
  for (int c = static_cast<int>(threadIdx.x); c < a.width; c += kThreads) {
    F total = 0;
    for (int from = 0; from < kWarps; ++from) total += shared[from * a.width + c];
    a.partial[blockIdx.x * a.width + c] = total;
  }
}

}  // namespace

template <class T>
void head_norm_forward(Context& gpu, const cpu::HeadNormForward<T>& a) {
  // A power of two divides the OR of these exactly if it divides each of them.
  with_pack<T>(
      a.width | a.x.row | a.x.head | a.y.row | a.y.head,
      [&]<int N>() {
        launch(gpu, "head_norm_forward", forward_kernel<T, N>,
               {.blocks = {blocks_for(a.rows * a.heads, kWarps)}, .threads = kThreads}, a);
      },
      a.x.data, static_cast<const T*>(a.y.data), a.w);
}

template <class T>
void head_norm_backward(Context& gpu, const cpu::HeadNormBackward<T>& a) {
  using F = compute_t<T>;
  const Grid grid{.blocks = {a.blocks},
                  .threads = kThreads,
                  .shared = kWarps * a.width * static_cast<int64_t>(sizeof(F))};
  with_pack<T>(
      a.width | a.x.row | a.x.head | a.dy.row | a.dy.head | a.dx.row | a.dx.head,
      [&]<int N>() { launch(gpu, "head_norm_backward", backward_kernel<T, N>, grid, a); }, a.x.data,
      a.dy.data, static_cast<const T*>(a.dx.data), a.w);
  column_sums(gpu, "head_norm_weight_sums", a.dw, a.partial, a.blocks, a.width, a.accumulate);
}

#define TRIREME_INSTANTIATE(T)                                                  \
  template void head_norm_forward<T>(Context&, const cpu::HeadNormForward<T>&); \
  template void head_norm_backward<T>(Context&, const cpu::HeadNormBackward<T>&);
TRIREME_INSTANTIATE(double)
TRIREME_INSTANTIATE(float)
TRIREME_INSTANTIATE(bf16)
TRIREME_INSTANTIATE(f16)

}  // namespace trireme::cuda
