#include "engine/ops/backend/kernel.cuda.h"
#include "engine/ops/moe/expert_rows.kernels.h"

namespace trireme::cuda {
namespace {

constexpr int kThreads = 128;  // one thread block per row

template <class T, int N>
__global__ void __launch_bounds__(kThreads) gather_kernel(cpu::GatherRows<T> a) {
  begin_kernel();
  using Elements = Pack<T, N>;
  const int64_t q = blockIdx.x;
  const auto* x = reinterpret_cast<const Elements*>(a.x + a.pairs[q] / a.k * a.columns);
  auto* out = reinterpret_cast<Elements*>(a.out + q * a.columns);
  for (int64_t p = threadIdx.x; p < a.columns / N; p += kThreads) out[p] = x[p];
}

template <class T, int N>
__global__ void __launch_bounds__(kThreads) combine_kernel(cpu::CombineRows<T> a) {
  begin_kernel();
  using F = compute_t<T>;
  using Elements = Pack<T, N>;
  const int64_t t = blockIdx.x;
  auto* y = reinterpret_cast<Elements*>(a.y + t * a.columns);
  for (int64_t p = threadIdx.x; p < a.columns / N; p += kThreads) {
    F total[N] = {};
    for (int64_t i = t * a.k; i < (t + 1) * a.k; ++i) {
      if (a.places[i] < 0) continue;
      const F weight = a.weights == nullptr ? F{1} : a.weights[i];
      const Elements e = reinterpret_cast<const Elements*>(a.rows + a.places[i] * a.columns)[p];
#pragma unroll
      for (int n = 0; n < N; ++n) total[n] += to_compute(e.v[n]) * weight;
    }
    Elements out;
#pragma unroll
    for (int n = 0; n < N; ++n) out.v[n] = static_cast<T>(total[n]);
    y[p] = out;
  }
}

// Each element of a row is read and then written by the same thread, so that d_rows may alias rows.
template <class T, int N>
__global__ void __launch_bounds__(kThreads) combine_backward_kernel(cpu::CombineRowsBackward<T> a) {
  begin_kernel();
  using F = compute_t<T>;
  using Elements = Pack<T, N>;
  __shared__ F shared[kWarp];
  const int64_t t = blockIdx.x;
  const auto* dy = reinterpret_cast<const Elements*>(a.dy + t * a.columns);
  for (int64_t i = t * a.k; i < (t + 1) * a.k; ++i) {
    F dot = 0;
    if (a.places[i] >= 0) {
      const int64_t at = a.places[i] * a.columns;
      const F weight = a.weights[i];
#pragma unroll 1
      for (int64_t p = threadIdx.x; p < a.columns / N; p += kThreads) {
        Elements d = dy[p];
        const Elements e = reinterpret_cast<const Elements*>(a.rows + at)[p];
#pragma unroll
        for (int n = 0; n < N; ++n) {
          dot += to_compute(d.v[n]) * to_compute(e.v[n]);
          d.v[n] = static_cast<T>(to_compute(d.v[n]) * weight);
        }
        reinterpret_cast<Elements*>(a.d_rows + at)[p] = d;
      }
    }
    dot = block_sum(dot, shared);
    if (threadIdx.x == 0) a.d_weights[i] = dot;
  }
}

template <class T, int N>
__global__ void __launch_bounds__(kThreads) scale_kernel(cpu::ScaleRows<T> a) {
  begin_kernel();
  using F = compute_t<T>;
  using Elements = Pack<T, N>;
  const int64_t t = blockIdx.x;
  const auto* x = reinterpret_cast<const Elements*>(a.x + t * a.columns);
  auto* y = reinterpret_cast<Elements*>(a.y + t * a.columns);
  const F gate = a.gate[t];
  for (int64_t p = threadIdx.x; p < a.columns / N; p += kThreads) {
    Elements e = x[p];
    const Elements before = a.accumulate ? y[p] : Elements{};
#pragma unroll
    for (int n = 0; n < N; ++n) {
      F value = to_compute(e.v[n]) * gate;
      if (a.accumulate) value += to_compute(before.v[n]);
      e.v[n] = static_cast<T>(value);
    }
    y[p] = e;
  }
}

template <class T, int N>
__global__ void __launch_bounds__(kThreads) dot_kernel(cpu::DotRows<T> a) {
  begin_kernel();
  using F = compute_t<T>;
  using Elements = Pack<T, N>;
  __shared__ F shared[kWarp];
  const int64_t t = blockIdx.x;
  const auto* x = reinterpret_cast<const Elements*>(a.a + t * a.columns);
  const auto* y = reinterpret_cast<const Elements*>(a.b + t * a.columns);
  F dot = 0;
  for (int64_t p = threadIdx.x; p < a.columns / N; p += kThreads) {
    const Elements e = x[p], f = y[p];
#pragma unroll
    for (int n = 0; n < N; ++n) dot += to_compute(e.v[n]) * to_compute(f.v[n]);
  }
  dot = block_sum(dot, shared);
  if (threadIdx.x == 0) a.out[t] = dot;
}

Grid row_each(int64_t rows) { return {.blocks = {rows}, .threads = kThreads}; }

}  // namespace

template <class T>
void gather_rows(Context& gpu, const cpu::GatherRows<T>& a) {
  with_pack<T>(
      a.columns,
      [&]<int N>() { launch(gpu, "gather_rows", gather_kernel<T, N>, row_each(a.rows), a); }, a.out,
      a.x);
}

template <class T>
void combine_rows(Context& gpu, const cpu::CombineRows<T>& a) {
  with_pack<T>(
      a.columns,
      [&]<int N>() { launch(gpu, "combine_rows", combine_kernel<T, N>, row_each(a.tokens), a); },
      a.y, a.rows);
}

template <class T>
void combine_rows_backward(Context& gpu, const cpu::CombineRowsBackward<T>& a) {
  with_pack<T>(
      a.columns,
      [&]<int N>() {
        launch(gpu, "combine_rows_backward", combine_backward_kernel<T, N>, row_each(a.tokens), a);
      },
      a.d_rows, a.dy, a.rows);
}

template <class T>
void scale_rows(Context& gpu, const cpu::ScaleRows<T>& a) {
  with_pack<T>(
      a.columns,
      [&]<int N>() { launch(gpu, "scale_rows", scale_kernel<T, N>, row_each(a.rows), a); }, a.y,
      a.x);
}

template <class T>
void dot_rows(Context& gpu, const cpu::DotRows<T>& a) {
  with_pack<T>(
      a.columns, [&]<int N>() { launch(gpu, "dot_rows", dot_kernel<T, N>, row_each(a.rows), a); },
      a.a, a.b);
}

#define TRIREME_INSTANTIATE(T)                                                          \
  template void gather_rows<T>(Context&, const cpu::GatherRows<T>&);                    \
  template void combine_rows<T>(Context&, const cpu::CombineRows<T>&);                  \
  template void combine_rows_backward<T>(Context&, const cpu::CombineRowsBackward<T>&); \
  template void scale_rows<T>(Context&, const cpu::ScaleRows<T>&);                      \
  template void dot_rows<T>(Context&, const cpu::DotRows<T>&);
TRIREME_INSTANTIATE(double)
TRIREME_INSTANTIATE(float)
TRIREME_INSTANTIATE(bf16)
TRIREME_INSTANTIATE(f16)

}  // namespace trireme::cuda
