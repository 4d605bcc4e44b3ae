#include "engine/core/normal_number.h"
#include "engine/ops/moe/best_of_row.cuda.h"
#include "engine/ops/moe/router_noise.cuda.h"
#include "engine/ops/rows/column_sums.cuda.h"

namespace trireme::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / kWarp;
constexpr double kNoiseFloor = 0.01;

__device__ int64_t number_of_warp() {
  return static_cast<int64_t>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x) / kWarp;
}

__device__ double sigma(double raw) { return (raw > 30 ? raw : log1p(exp(raw))) + kNoiseFloor; }

// The k-th and the (k + 1)-th largest of a row: thresholds for other experts and for chosen ones.
struct Thresholds {
  int32_t in, out;
  double in_value, out_value;
};

template <class T>
__device__ Thresholds thresholds(const T* h, int64_t count, int64_t k) {
  Thresholds t{};
  Position<T> at;
#pragma unroll 1
  for (int64_t rank = 0; rank <= k; ++rank) {
    at = next_position(h, count, at);
    if (at.index < 0) at.index = 0;  // a row of NaN
    if (rank == k - 1) t.out = at.index;
    if (rank == k) t.in = at.index;
  }
  t.in_value = static_cast<double>(h[t.in]);
  t.out_value = static_cast<double>(h[t.out]);
  return t;
}

// Whether e is one of the k best: not after the k-th in the order.
template <class T>
__device__ bool chosen(const T* h, int64_t e, const Thresholds& t) {
  return h[e] > h[t.out] || (h[e] == h[t.out] && e <= t.out);
}

template <class T>
__global__ void __launch_bounds__(kThreads) logits_kernel(NoisyLogits<T> a) {
  begin_kernel();
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= a.tokens * a.count) return;
  const int64_t index = a.rows[i / a.count] * a.count + i % a.count;
  const double z = normal_number(a.key, static_cast<uint64_t>(index));
  a.noise[i] = static_cast<T>(z);
  a.noisy[i] =
      static_cast<T>(static_cast<double>(a.logits[i]) + z * sigma(static_cast<double>(a.raw[i])));
}

// One warp per block of tokens; a lane sums experts lane, lane + 32, ... in order.
template <class T>
__global__ void __launch_bounds__(kThreads) load_kernel(NoisyLoad<T> a) {
  begin_kernel();
  const int lane = lane_of_warp();
  const int64_t block = number_of_warp();
  if (block >= a.blocks) return;
  double* const out = a.partial + block * a.count;
#pragma unroll 1
  for (int64_t e = lane; e < a.count; e += kWarp) out[e] = 0;
  const int64_t end = first_row(block + 1, a.blocks, a.tokens);
#pragma unroll 1
  for (int64_t t = first_row(block, a.blocks, a.tokens); t < end; ++t) {
    if (a.valid != nullptr && a.valid[t] == 0) continue;
    if (a.k >= a.count) {
#pragma unroll 1
      for (int64_t e = lane; e < a.count; e += kWarp) out[e] += 1;
      continue;
    }
    const T *h = a.noisy + t * a.count, *l = a.logits + t * a.count, *r = a.raw + t * a.count;
    const Thresholds tau = thresholds(h, a.count, a.k);
#pragma unroll 1
    for (int64_t e = lane; e < a.count; e += kWarp) {
      const double bar = chosen(h, e, tau) ? tau.in_value : tau.out_value;
      const double z = (static_cast<double>(l[e]) - bar) / sigma(static_cast<double>(r[e]));
      out[e] += erfc(-z / std::numbers::sqrt2) / 2;
    }
  }
}

// Contribution of the load to the gradients of one expert: by l, and as ds by sigma.
struct LoadSlope {
  double slope = 0, ds = 0;
};

template <class T>
__device__ LoadSlope load_slope(const NoisyBackward<T>& a, int64_t row, int64_t e, bool in,
                                const Thresholds& tau) {
  const double s = sigma(static_cast<double>(a.raw[row + e]));
  const double z =
      (static_cast<double>(a.logits[row + e]) - (in ? tau.in_value : tau.out_value)) / s;
  const double density = exp(-z * z / 2) / sqrt(2 * std::numbers::pi);
  const double slope = a.d_load[e] * density / s;
  return {slope, -slope * z};
}

// One warp per token. The slopes are computed twice: first for their sums, which belong to the two
// threshold experts.
template <class T>
__global__ void __launch_bounds__(kThreads) backward_kernel(NoisyBackward<T> a) {
  begin_kernel();
  const int lane = lane_of_warp();
  const int64_t t = number_of_warp();
  if (t >= a.tokens) return;
  const int64_t row = t * a.count;
  const T* h = a.noisy + row;
  const bool has_load = (a.valid == nullptr || a.valid[t] != 0) && a.k < a.count;
  Thresholds tau{};
  double by_in = 0, by_out = 0;
  if (has_load) {
    tau = thresholds(h, a.count, a.k);
    for (int64_t e = lane; e < a.count; e += kWarp) {
      const bool in = chosen(h, e, tau);
      const double slope = load_slope(a, row, e, in, tau).slope;
      (in ? by_in : by_out) += slope;
    }
    by_in = warp_sum(by_in);
    by_out = warp_sum(by_out);
  }
  for (int64_t e = lane; e < a.count; e += kWarp) {
    const auto raw = static_cast<double>(a.raw[row + e]);
    auto dh = static_cast<double>(a.d_logits[row + e]);
    LoadSlope own;
    if (has_load) {
      own = load_slope(a, row, e, chosen(h, e, tau), tau);
      if (e == tau.in) dh -= by_in;
      if (e == tau.out) dh -= by_out;
    }
    a.d_logits[row + e] = static_cast<T>(dh + own.slope);
    a.d_raw[row + e] =
        static_cast<T>((dh * static_cast<double>(a.noise[row + e]) + own.ds) / (1 + exp(-raw)));
  }
}

}  // namespace

template <class T>
void noisy_logits(Context& gpu, const NoisyLogits<T>& a) {
  launch(gpu, "noisy_logits", logits_kernel<T>,
         {.blocks = {blocks_for(a.tokens * a.count, kThreads)}, .threads = kThreads}, a);
}

template <class T>
void noisy_load(Context& gpu, const NoisyLoad<T>& a) {
  launch(gpu, "noisy_load", load_kernel<T>,
         {.blocks = {blocks_for(a.blocks, kWarps)}, .threads = kThreads}, a);
  column_sums(gpu, "noisy_load_sums", a.load, a.partial, a.blocks, a.count, true);
}

template <class T>
void noisy_backward(Context& gpu, const NoisyBackward<T>& a) {
  launch(gpu, "noisy_backward", backward_kernel<T>,
         {.blocks = {blocks_for(a.tokens, kWarps)}, .threads = kThreads}, a);
}

#define TRIREME_INSTANTIATE(T)                                    \
  template void noisy_logits<T>(Context&, const NoisyLogits<T>&); \
  template void noisy_load<T>(Context&, const NoisyLoad<T>&);     \
  template void noisy_backward<T>(Context&, const NoisyBackward<T>&);
TRIREME_INSTANTIATE(double)
TRIREME_INSTANTIATE(float)

}  // namespace trireme::cuda
