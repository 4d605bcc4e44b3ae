#include "engine/ops/attention/attention_sinks.kernels.h"
#include "engine/ops/attention/attention_tile.cuda.h"
#include "engine/ops/backend/elements.cuda.h"
#include "engine/ops/backend/math.cuda.h"
#include "engine/ops/rows/column_sums.cuda.h"

namespace trireme::cuda {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / kWarp;

// A warp takes a head of a token, N elements per lane at a time.
template <class T, int N>
__global__ void __launch_bounds__(kThreads) forward_kernel(cpu::SinksForward<T> a) {
  begin_kernel();
  using F = compute_t<T>;
  const int64_t v = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp;
  if (v >= a.tokens * a.heads) return;
  const int64_t t = quotient(v, a.heads), h = v - t * a.heads;
  F* const at = a.lse + h * a.tokens + t;
  const F lse = *at, sink = to_compute(a.sinks[h]);
  if (lse == F{-kInfinity}) return;
  const F most = lse > sink ? lse : sink, least = lse > sink ? sink : lse;
  const F now = most + log_of(F{1} + exponential(least - most));
  const F factor = exponential(lse - now);
  __syncwarp();  // until every lane has read lse
  if (lane_of_warp() == 0) *at = now;
  T* const out = a.out.data + t * a.out.row + h * a.out.head;
  for (int p = lane_of_warp(); p < static_cast<int>(a.width) / N; p += kWarp) {
    Pack<T, N> e = load_pack<T, N>(out, p);
#pragma unroll
    for (int i = 0; i < N; ++i) e.v[i] = static_cast<T>(to_compute(e.v[i]) * factor);
    store_pack<T, N>(out, p, e);
  }
}

// Block (x, y) adds up head x of block y of the tokens: its warps take tokens in turn, and their
// sums are added in order.
template <class T, int N>
__global__ void __launch_bounds__(kThreads) backward_kernel(cpu::SinksBackward<T> a) {
  begin_kernel();
  using F = compute_t<T>;
  __shared__ F shared[kWarp];
  const int64_t h = blockIdx.x, last = first_row(blockIdx.y + 1, a.blocks, a.tokens);
  const F sink = to_compute(a.sinks[h]);
  F total = 0;  // of this lane
  for (int64_t t = first_row(blockIdx.y, a.blocks, a.tokens) + threadIdx.x / kWarp; t < last;
       t += kWarps) {
    const F lse = a.lse[h * a.tokens + t];
    if (lse == F{-kInfinity}) continue;
    const T* const d = a.dout.data + t * a.dout.row + h * a.dout.head;
    const T* const out = a.out.data + t * a.out.row + h * a.out.head;
    F dot = 0;
    for (int p = lane_of_warp(); p < static_cast<int>(a.width) / N; p += kWarp) {
      const Pack<T, N> x = load_pack<T, N>(d, p), y = load_pack<T, N>(out, p);
#pragma unroll
      for (int i = 0; i < N; ++i) dot += to_compute(x.v[i]) * to_compute(y.v[i]);
    }
    total -= exponential(sink - lse) * dot;
  }
  total = block_sum(total, shared);
  if (threadIdx.x == 0) a.partial[blockIdx.y * a.heads + h] = total;
}

}  // namespace

template <class T>
void attention_sinks_forward(Context& gpu, const cpu::SinksForward<T>& a) {
  // A power of two divides the OR of these exactly if it divides each of them.
  with_pack<T>(
      a.width | a.out.row | a.out.head,
      [&]<int N>() {
        launch(gpu, "attention_sinks_forward", forward_kernel<T, N>,
               {.blocks = {blocks_for(a.tokens * a.heads, kWarps)}, .threads = kThreads}, a);
      },
      static_cast<const T*>(a.out.data));
}

template <class T>
void attention_sinks_backward(Context& gpu, const cpu::SinksBackward<T>& a) {
  with_pack<T>(
      a.width | a.dout.row | a.dout.head | a.out.row | a.out.head,
      [&]<int N>() {
        launch(gpu, "attention_sinks_backward", backward_kernel<T, N>,
               {.blocks = {a.heads, a.blocks}, .threads = kThreads}, a);
      },
      a.dout.data, a.out.data);
  column_sums(gpu, "attention_sinks_sums", a.d_sinks, a.partial, a.blocks, a.heads, a.accumulate);
}

#define TRIREME_INSTANTIATE(T)                                                     \
  template void attention_sinks_forward<T>(Context&, const cpu::SinksForward<T>&); \
  template void attention_sinks_backward<T>(Context&, const cpu::SinksBackward<T>&);
TRIREME_INSTANTIATE(double)
TRIREME_INSTANTIATE(float)
TRIREME_INSTANTIATE(bf16)
TRIREME_INSTANTIATE(f16)

}  // namespace trireme::cuda
