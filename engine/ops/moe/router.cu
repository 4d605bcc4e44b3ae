#include "engine/ops/backend/math.cuda.h"
#include "engine/ops/moe/best_of_row.cuda.h"
#include "engine/ops/moe/router.kernels.h"

namespace trireme::cuda {
namespace {

constexpr int kWarps = 4;  // per thread block; each takes a token
constexpr int kThreads = kWarps * kWarp;

__device__ int64_t row_of_warp() {
  return static_cast<int64_t>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x) / kWarp;
}
// The warp's row of n elements of the dynamic shared memory.
template <class T>
__device__ T* row_in_shared(int64_t n) {
  return dynamic_shared<T>() + static_cast<int>(threadIdx.x) / kWarp * n;
}

template <class T>
__device__ T row_maximum(const T* x, int64_t n) {
  T top = kLowest<T>;
  for (int64_t i = lane_of_warp(); i < n; i += kWarp) top = x[i] > top ? x[i] : top;
  return warp_max(top);
}

// Each lane writes the scores of experts lane, lane + 32, ...
template <class T>
__device__ void score_row(const cpu::RouterForward<T>& a, T* s, const T* x) {
  const int lane = lane_of_warp();
  if (a.sigmoid) {
#pragma unroll 1
    for (int64_t e = lane; e < a.count; e += kWarp) s[e] = T{1} / (T{1} + exponential(-x[e]));
    return;
  }
  const T top = row_maximum(x, a.count);
  T total = 0;
#pragma unroll 1
  for (int64_t e = lane; e < a.count; e += kWarp) total += s[e] = exponential(x[e] - top);
  const T factor = T{1} / warp_sum(total);
#pragma unroll 1
  for (int64_t e = lane; e < a.count; e += kWarp) s[e] *= factor;
}

// Rating of a group: the largest of its choices, or the sum of its two largest. A NaN counts as the
// lowest finite number.
template <class T>
__device__ T group_value(const T* choice, int64_t width, bool two) {
  T first = choice[0], second = -static_cast<T>(INFINITY);
#pragma unroll 1
  for (int64_t e = 1; e < width; ++e) {
    const T value = choice[e];
    second = value > first ? first : value > second ? value : second;
    first = value > first ? value : first;
  }
  const T value = two && width > 1 ? first + second : first;
  return value == value ? value : kLowest<T>;  // infinity and -infinity
}

// Removes the experts of groups that are not kept from the order.
template <class T>
__device__ void keep_groups(const cpu::RouterForward<T>& a, T* choice) {
  const int lane = lane_of_warp();
  const int64_t width = a.count / a.groups;
  static_assert(cpu::kMaxRouterGroups == 2 * kWarp);  // a lane has two of them
  Position<T> low, high;
  if (lane < a.groups) low = {group_value(choice + lane * width, width, a.sigmoid), lane};
  if (lane + kWarp < a.groups)
    high = {group_value(choice + (lane + kWarp) * width, width, a.sigmoid), lane + kWarp};
  uint64_t kept = 0;
  Position<T> at;
#pragma unroll 1
  for (int64_t i = 0; i < a.kept_groups; ++i) {
    Position<T> best;
    if (low.index >= 0 && low.follows(at)) best = low;
    if (high.index >= 0 && high.follows(at) && high.precedes(best)) best = high;
    at = warp_first(best);
    if (at.index >= 0) kept |= uint64_t{1} << at.index;
  }
  __syncwarp();  // until all lanes have read their groups
#pragma unroll 1
  for (int64_t e = lane; e < a.count; e += kWarp)
    if ((kept >> (e / width) & 1) == 0) choice[e] = static_cast<T>(NAN);
  __syncwarp();
}

template <class T>
__global__ void __launch_bounds__(kThreads) forward_kernel(cpu::RouterForward<T> a) {
  begin_kernel();
  const int lane = lane_of_warp();
  const int64_t row = row_of_warp();
  if (row >= a.rows) return;
  T* const choice = row_in_shared<T>(a.count);
  T* const s = a.scores + row * a.count;
  int32_t* const experts = a.experts + row * a.k;
  T* const weights = a.weights + row * a.k;
  const T* const l = a.logits + row * a.count;
  score_row(a, s, l);
#pragma unroll 1
  for (int64_t e = lane; e < a.count; e += kWarp) {
    const T value = a.by_logits ? l[e] : a.bias != nullptr ? s[e] + a.bias[e] : s[e];
    choice[e] = value == value ? value : kLowest<T>;  // a NaN is last
  }
  __syncwarp();
  if (a.valid != nullptr && a.valid[row] == 0) {
#pragma unroll 1
    for (int64_t j = lane; j < a.k; j += kWarp) {
      experts[j] = -1;
      weights[j] = 0;
    }
    return;
  }
  if (a.kept_groups < a.groups) keep_groups(a, choice);
  T total = static_cast<T>(cpu::kRouterWeightFloor);
  Position<T> at;
#pragma unroll 1
  for (int64_t j = 0; j < a.k; ++j) {
    at = next_position(choice, a.count, at);
    if (lane == 0) experts[j] = at.index;
    total += s[at.index];
  }
  __syncwarp();
  const T factor = a.normalize ? a.scale / total : a.scale;
#pragma unroll 1
  for (int64_t j = lane; j < a.k; j += kWarp) weights[j] = s[experts[j]] * factor;
}

// d[e] += gradient of the loss with respect to score s_e, through the weights. A token's experts
// are distinct.
template <class T>
__device__ void weights_backward(const cpu::RouterBackward<T>& a, int64_t row, const T* s, T* d) {
  const int32_t* experts = a.experts + row * a.k;
  const T* dw = a.d_weights + row * a.k;
  const auto gradient = [&](int64_t j) {
    return a.importance == nullptr ? dw[j] : dw[j] + static_cast<T>(a.importance[experts[j]]);
  };
  T total = static_cast<T>(cpu::kRouterWeightFloor), dot = 0;
  for (int64_t j = 0; j < a.k; ++j) {
    total += s[experts[j]];
    dot += gradient(j) * s[experts[j]];
  }
  for (int64_t j = lane_of_warp(); j < a.k; j += kWarp)
    d[experts[j]] +=
        a.normalize ? a.scale * (gradient(j) - dot / total) / total : a.scale * gradient(j);
}

// The same for q = s / sum(s).
template <class T>
__device__ void probability_backward(const cpu::RouterBackward<T>& a, int64_t row, const T* s,
                                     T* d) {
  const double* g = a.probability + (a.segments == nullptr ? 0 : a.segments[row]) * a.count;
  T total = 0, dot = 0;
  for (int64_t e = lane_of_warp(); e < a.count; e += kWarp) {
    total += s[e];
    dot += static_cast<T>(g[e]) * s[e];
  }
  total = warp_sum(total);
  const T mean = warp_sum(dot) / total;
  for (int64_t e = lane_of_warp(); e < a.count; e += kWarp)
    d[e] += (static_cast<T>(g[e]) - mean) / total;
}

// d[e] += z times the gradient of logsumexp(x)^2
template <class T>
__device__ void z_backward(T z, const T* x, int64_t count, T* d) {
  const T top = row_maximum(x, count);
  T total = 0;
  for (int64_t e = lane_of_warp(); e < count; e += kWarp) total += exponential(x[e] - top);
  total = warp_sum(total);
  const T lse = top + static_cast<T>(log(static_cast<double>(total)));
  const T factor = T{2} * z * lse / total;
  for (int64_t e = lane_of_warp(); e < count; e += kWarp) d[e] += factor * exponential(x[e] - top);
}

template <class T>
__global__ void __launch_bounds__(kThreads) backward_kernel(cpu::RouterBackward<T> a) {
  begin_kernel();
  const int lane = lane_of_warp();
  const int64_t row = row_of_warp();
  if (row >= a.rows) return;
  T* const d = row_in_shared<T>(a.count);
  T* const out = a.d_logits + row * a.count;
  const T* s = a.scores + row * a.count;
  for (int64_t e = lane; e < a.count; e += kWarp) d[e] = 0;
  __syncwarp();
  if (a.experts[row * a.k] >= 0) {  // else padding
    weights_backward(a, row, s, d);
    __syncwarp();  // from here on a lane writes its own experts only
    if (a.probability != nullptr) probability_backward(a, row, s, d);
    if (a.sigmoid) {
      for (int64_t e = lane; e < a.count; e += kWarp) d[e] *= s[e] * (T{1} - s[e]);
    } else {
      T dot = 0;
      for (int64_t e = lane; e < a.count; e += kWarp) dot += d[e] * s[e];
      dot = warp_sum(dot);
      for (int64_t e = lane; e < a.count; e += kWarp) d[e] = s[e] * (d[e] - dot);
    }
    if (a.z != nullptr && *a.z != 0)
      z_backward(static_cast<T>(*a.z), a.logits + row * a.count, a.count, d);
  }
  for (int64_t e = lane; e < a.count; e += kWarp) out[e] = d[e];
}

// One warp per row, with a row of `count` elements of T in shared memory.
template <class T>
Grid warp_each(int64_t rows, int64_t count) {
  return {.blocks = {blocks_for(rows, kWarps)},
          .threads = kThreads,
          .shared = kWarps * count * static_cast<int64_t>(sizeof(T))};
}

}  // namespace

template <class T>
void router_forward(Context& gpu, const cpu::RouterForward<T>& a) {
  launch(gpu, "router_forward", forward_kernel<T>, warp_each<T>(a.rows, a.count), a);
}

template <class T>
void router_backward(Context& gpu, const cpu::RouterBackward<T>& a) {
  launch(gpu, "router_backward", backward_kernel<T>, warp_each<T>(a.rows, a.count), a);
}

#define TRIREME_INSTANTIATE(T)                                             \
  template void router_forward<T>(Context&, const cpu::RouterForward<T>&); \
  template void router_backward<T>(Context&, const cpu::RouterBackward<T>&);
TRIREME_INSTANTIATE(double)
TRIREME_INSTANTIATE(float)

}  // namespace trireme::cuda
