#include <algorithm>

#include "engine/ops/norm/norm.kernels.h"
#include "engine/ops/rows/column_sums.cuda.h"

namespace trireme::cuda {
namespace {

constexpr int kMaxThreads = 256;

// Threads of a block for rows of `packs` packs: narrow rows leave no warp idle.
int threads_for(int64_t packs) {
  return static_cast<int>(std::clamp<int64_t>(round_up(packs, kWarp), kWarp, kMaxThreads));
}

// w, or 1 + w. Decided at compile time: without kUnit it costs nothing.
template <bool kUnit, class T>
__device__ compute_t<T> weight(T w) {
  if constexpr (kUnit) return compute_t<T>{1} + to_compute(w);
  return to_compute(w);
}

// N elements of a row at a time: as many as 16 bytes hold if rows are aligned to that, else one.
// The row that is normalized is kept in shared memory, so that it is read once.
template <class T, int N, bool kCentered, bool kUnit>
__global__ void __launch_bounds__(kMaxThreads) forward_kernel(cpu::NormForward<T> a) {
  begin_kernel();
  using F = compute_t<T>;
  using Elements = Pack<T, N>;
  __shared__ F shared[kWarp];
  auto* const row = dynamic_shared<Elements>();
  const int64_t at = static_cast<int64_t>(blockIdx.x) * a.columns;
  const int64_t packs = a.columns / N;
  const auto* x = reinterpret_cast<const Elements*>(a.x + at);
  const auto* residual = reinterpret_cast<const Elements*>(a.residual + at);
  F sum = 0, squares = 0;
  for (int64_t p = threadIdx.x; p < packs; p += blockDim.x) {
    Elements e = x[p];
    if (a.h != nullptr) {
      const Elements r = residual[p];
#pragma unroll
      for (int i = 0; i < N; ++i) e.v[i] = static_cast<T>(to_compute(e.v[i]) + to_compute(r.v[i]));
      reinterpret_cast<Elements*>(a.h + at)[p] = e;
    }
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const F value = to_compute(e.v[i]);
      sum += value;
      squares += value * value;
    }
    row[p] = e;
  }
  const F count = static_cast<F>(a.columns);
  F mean = 0;
  if constexpr (kCentered) {
    mean = block_sum(sum, shared) / count;
    squares = 0;  // around the mean: a difference of two large sums would lose digits
    for (int64_t p = threadIdx.x; p < packs; p += blockDim.x) {
      const Elements e = row[p];
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const F d = to_compute(e.v[i]) - mean;
        squares += d * d;
      }
    }
  }
  const F rstd = inverse_root(block_sum(squares, shared) / count + a.eps);
  if (threadIdx.x == 0) {
    a.rstd[blockIdx.x] = rstd;
    if constexpr (kCentered) a.mean[blockIdx.x] = mean;
  }
  const auto* w = reinterpret_cast<const Elements*>(a.w);
  const auto* b = reinterpret_cast<const Elements*>(a.b);
  auto* y = reinterpret_cast<Elements*>(a.y + at);
  for (int64_t p = threadIdx.x; p < packs; p += blockDim.x) {
    Elements e = row[p];
    const Elements scale = w[p];
#pragma unroll
    for (int i = 0; i < N; ++i) {
      F value = (to_compute(e.v[i]) - mean) * rstd * weight<kUnit>(scale.v[i]);
      if constexpr (kCentered) value += to_compute(b[p].v[i]);
      e.v[i] = static_cast<T>(value);
    }
    y[p] = e;
  }
}

// Row r of dx, where g = dy (u + w) and n is the normalized row: rstd (g - mean(g) - n mean(g n))
// [+ dh_in].
template <int N, bool kUnit, class T, class F>
__device__ void input_gradient(const cpu::NormBackward<T>& a, int64_t r, F rstd, F mean, F mean_g,
                               F mean_gn) {
  using Elements = Pack<T, N>;
  const int64_t at = r * a.columns;
  const auto* w = reinterpret_cast<const Elements*>(a.w);
  const auto* dy = reinterpret_cast<const Elements*>(a.dy + at);
  const auto* h = reinterpret_cast<const Elements*>(a.h + at);
  const auto* dh_in = reinterpret_cast<const Elements*>(a.dh_in + at);
  auto* dx = reinterpret_cast<Elements*>(a.dx + at);
  for (int64_t p = threadIdx.x; p < a.columns / N; p += blockDim.x) {
    Elements d = dy[p];
    const Elements e = h[p], scale = w[p];
    const Elements other = a.dh_in != nullptr ? dh_in[p] : Elements{};
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const F n = (to_compute(e.v[i]) - mean) * rstd;
      const F g = to_compute(d.v[i]) * weight<kUnit>(scale.v[i]);
      F value = rstd * (g - mean_g - n * mean_gn);
      if (a.dh_in != nullptr) value += to_compute(other.v[i]);
      d.v[i] = static_cast<T>(value);
    }
    dx[p] = d;
  }
}

// A thread block takes a block of rows and sums their part of dw and db in shared memory, where
// every column belongs to one thread.
template <class T, int N, bool kCentered, bool kUnit>
__global__ void __launch_bounds__(kMaxThreads) backward_kernel(cpu::NormBackward<T> a) {
  begin_kernel();
  using F = compute_t<T>;
  using Elements = Pack<T, N>;
  using Sums = Pack<F, N>;
  __shared__ F shared[kWarp];
  const int64_t packs = a.columns / N;
  auto* const dw = dynamic_shared<Sums>();
  auto* const db = dw + packs;
  for (int64_t p = threadIdx.x; p < packs; p += blockDim.x) {
    dw[p] = Sums{};
    if constexpr (kCentered) db[p] = Sums{};
  }
  const auto* w = reinterpret_cast<const Elements*>(a.w);
  const F inverse_count = F{1} / static_cast<F>(a.columns);
  const int64_t last = first_row(blockIdx.x + 1, a.blocks, a.rows);
  for (int64_t r = first_row(blockIdx.x, a.blocks, a.rows); r < last; ++r) {
    const int64_t at = r * a.columns;
    const auto* dy = reinterpret_cast<const Elements*>(a.dy + at);
    const auto* h = reinterpret_cast<const Elements*>(a.h + at);
    const F rstd = a.rstd[r], mean = kCentered ? a.mean[r] : F{0};
    F sum_g = 0, sum_gn = 0;
    for (int64_t p = threadIdx.x; p < packs; p += blockDim.x) {
      const Elements d = dy[p], e = h[p], scale = w[p];
      Sums to_w = dw[p];
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const F n = (to_compute(e.v[i]) - mean) * rstd;
        const F g = to_compute(d.v[i]) * weight<kUnit>(scale.v[i]);
        sum_gn += g * n;
        to_w.v[i] += to_compute(d.v[i]) * n;
        if constexpr (kCentered) {
          sum_g += g;
          db[p].v[i] += to_compute(d.v[i]);
        }
      }
      dw[p] = to_w;
    }
    const F mean_g = kCentered ? block_sum(sum_g, shared) * inverse_count : F{0};
    const F mean_gn = block_sum(sum_gn, shared) * inverse_count;
    input_gradient<N, kUnit>(a, r, rstd, mean, mean_g, mean_gn);
  }
  auto* partial_w = reinterpret_cast<Sums*>(a.partial + blockIdx.x * a.columns);
  auto* partial_b = reinterpret_cast<Sums*>(a.partial + (a.blocks + blockIdx.x) * a.columns);
  for (int64_t p = threadIdx.x; p < packs; p += blockDim.x) {
    partial_w[p] = dw[p];
    if constexpr (kCentered) partial_b[p] = db[p];
  }
}

}  // namespace

template <class T>
void norm_forward(Context& gpu, const cpu::NormForward<T>& a) {
  with_pack<T>(
      a.columns,
      [&]<int N>() {
        const Grid grid{.blocks = {a.rows},
                        .threads = threads_for(a.columns / N),
                        .shared = a.columns * static_cast<int64_t>(sizeof(T))};
        if (a.mean != nullptr)
          launch(gpu, "layernorm_forward", forward_kernel<T, N, true, false>, grid, a);
        else if (a.unit != 0)
          launch(gpu, "rmsnorm_unit_forward", forward_kernel<T, N, false, true>, grid, a);
        else
          launch(gpu, "rmsnorm_forward", forward_kernel<T, N, false, false>, grid, a);
      },
      a.y, a.h, a.x, a.residual, a.w, a.b);
}

template <class T>
void norm_backward(Context& gpu, const cpu::NormBackward<T>& a) {
  using F = compute_t<T>;
  const bool centered = a.mean != nullptr;
  with_pack<T>(
      a.columns,
      [&]<int N>() {
        const int64_t sums = centered ? 2 : 1;
        const Grid grid{.blocks = {a.blocks},
                        .threads = threads_for(a.columns / N),
                        .shared = sums * a.columns * static_cast<int64_t>(sizeof(F))};
        if (centered)
          launch(gpu, "layernorm_backward", backward_kernel<T, N, true, false>, grid, a);
        else if (a.unit != 0)
          launch(gpu, "rmsnorm_unit_backward", backward_kernel<T, N, false, true>, grid, a);
        else
          launch(gpu, "rmsnorm_backward", backward_kernel<T, N, false, false>, grid, a);
      },
      a.dx, a.dy, a.h, a.dh_in, a.w, a.partial);
  column_sums(gpu, "norm_weight_sums", a.dw, a.partial, a.blocks, a.columns, a.accumulate);
  if (centered)
    column_sums(gpu, "norm_bias_sums", a.db, a.partial + a.blocks * a.columns, a.blocks, a.columns,
                a.accumulate);
}

#define TRIREME_INSTANTIATE(T)                                         \
  template void norm_forward<T>(Context&, const cpu::NormForward<T>&); \
  template void norm_backward<T>(Context&, const cpu::NormBackward<T>&);
TRIREME_INSTANTIATE(double)
TRIREME_INSTANTIATE(float)
TRIREME_INSTANTIATE(bf16)
TRIREME_INSTANTIATE(f16)

}  // namespace trireme::cuda
