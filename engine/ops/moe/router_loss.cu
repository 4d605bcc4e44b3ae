#include "engine/ops/moe/router_loss.cuda.h"
#include "engine/ops/rows/column_sums.cuda.h"

namespace trireme::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / kWarp;
constexpr int kLossThreads = 256;

// One warp per token.
template <class T>
__global__ void __launch_bounds__(kThreads)
    row_values_kernel(RouterStatistics a, const T* scores, const T* logits) {
  begin_kernel();
  const int lane = lane_of_warp();
  const int64_t t =
      static_cast<int64_t>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x) / kWarp;
  if (t >= a.rows) return;
  double total = 0, top = -static_cast<double>(INFINITY), exponentials = 0;
  for (int64_t e = lane; e < a.count; e += kWarp) {
    total += static_cast<double>(scores[t * a.count + e]);
    const auto logit = static_cast<double>(logits[t * a.count + e]);
    top = logit > top ? logit : top;
  }
  total = warp_sum(total);
  top = warp_max(top);
  for (int64_t e = lane; e < a.count; e += kWarp)
    exponentials += exp(static_cast<double>(logits[t * a.count + e]) - top);
  const double lse = top + log(warp_sum(exponentials));
  if (lane != 0) return;
  a.values[t] = 1.0 / total;
  a.values[a.rows + t] = lse * lse;
}

__device__ int64_t sums_width(int64_t count) { return 3 * count + 3; }

// Block (segment, b): contribution of the segment's tokens in block of rows b, token by token:
// (count) probabilities, counts and weights, then tokens, z and tokens with a loss.
template <class T>
__global__ void __launch_bounds__(kThreads)
    partial_sums_kernel(RouterStatistics a, const T* scores, const T* weights) {
  begin_kernel();
  const int64_t segment = blockIdx.x, block = blockIdx.y;
  const int64_t begin = first_row(block, a.blocks, a.rows);
  const int64_t end = first_row(block + 1, a.blocks, a.rows);
  double* const out = a.partial + (block * a.segment_count + segment) * sums_width(a.count);
  const auto counted = [&](int64_t t) {
    return a.experts[t * a.k] >= 0 &&
           (a.segments == nullptr ? 0 : int64_t{a.segments[t]}) == segment;
  };
#pragma unroll 1
  for (int64_t e = threadIdx.x; e < a.count; e += kThreads) {
    double probability = 0, chosen = 0, weight = 0;
#pragma unroll 1
    for (int64_t t = begin; t < end; ++t) {
      if (!counted(t)) continue;
      probability += static_cast<double>(scores[t * a.count + e]) * a.values[t];
#pragma unroll 1
      for (int64_t i = t * a.k; i < (t + 1) * a.k; ++i) {
        if (a.experts[i] != e) continue;
        chosen += 1;
        weight += static_cast<double>(weights[i]);
      }
    }
    out[e] = probability;
    out[a.count + e] = chosen;
    out[2 * a.count + e] = weight;
  }
  if (threadIdx.x != 0) return;
  double tokens = 0, z = 0, with_loss = 0;
#pragma unroll 1
  for (int64_t t = begin; t < end; ++t) {
    if (!counted(t)) continue;
    tokens += 1;
    z += a.values[a.rows + t];
    if (a.targets != nullptr && a.targets[t] != a.ignored_target) with_loss += 1;
  }
  out[3 * a.count] = tokens;
  out[3 * a.count + 1] = z;
  out[3 * a.count + 2] = with_loss;
}

// Stores the sums (segment_count, 3 count + 3) over the blocks of rows in the op's outputs.
__global__ void __launch_bounds__(kThreads) spread_kernel(RouterStatistics a, const double* sums) {
  begin_kernel();
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t width = sums_width(a.count);
  const auto over_segments = [&](int64_t column) {
    double total = 0;
    for (int64_t s = 0; s < a.segment_count; ++s) total += sums[s * width + column];
    return total;
  };
  if (i < a.segment_count * a.count) {
    const double* row = sums + i / a.count * width;
    a.probabilities[i] = row[i % a.count];
    a.counts[i] = row[a.count + i % a.count];
  }
  if (i < a.segment_count) a.tokens[i] = sums[i * width + 3 * a.count];
  if (i < a.count) {
    a.importance[i] = over_segments(2 * a.count + i);
    a.load[i] = 0;
  }
  if (i != 0) return;
  *a.z = over_segments(3 * a.count + 1);
  *a.loss_tokens = over_segments(3 * a.count + 2);
}

// value += CV^2 of x; d = factor * gradient of it
__device__ double squared_variation(const double* x, int64_t n, double factor, double* d,
                                    double* shared) {
  const auto count = static_cast<double>(n);
  double mean = 0, variance = 0;
  for (int64_t i = threadIdx.x; i < n; i += kLossThreads) mean += x[i] / count;
  mean = block_sum(mean, shared);
  for (int64_t i = threadIdx.x; i < n; i += kLossThreads)
    variance += (x[i] - mean) * (x[i] - mean) / count;
  variance = block_sum(variance, shared);
  const double base = mean * mean + 1e-10;
  for (int64_t i = threadIdx.x; i < n; i += kLossThreads)
    d[i] = factor * 2 / count * ((x[i] - mean) / base - variance * mean / (base * base));
  return variance / base;
}

// One block: the sizes are small.
__global__ void __launch_bounds__(kLossThreads) losses_kernel(RouterLosses a) {
  begin_kernel();
  __shared__ double shared[kWarp];
  double n = 0;
  for (int64_t s = threadIdx.x; s < a.segments; s += kLossThreads) n += a.tokens[s];
  n = block_sum(n, shared);
  const double counted = *a.loss_tokens, weight = counted * *a.scale;
  double balance = 0;
  for (int64_t i = threadIdx.x; i < a.segments * a.count; i += kLossThreads) {
    const double tokens = a.tokens[i / a.count];
    double slope = 0;
    if (tokens != 0) {
      const double share = a.shares != nullptr ? a.shares[i % a.count]
                                               : a.counts[i] / (static_cast<double>(a.k) * tokens);
      // n_s / n f P with P = sum / n_s
      slope = a.balance_factor * static_cast<double>(a.count) * share / n;
      balance += counted * slope * a.probabilities[i];
    }
    a.d_probability[i] = weight * slope;
  }
  balance = block_sum(balance, shared);
  if (n == 0) {
    for (int64_t e = threadIdx.x; e < a.count; e += kLossThreads)
      a.d_importance[e] = a.d_load[e] = 0;
    if (threadIdx.x == 0) *a.d_z = 0;
    return;
  }
  const double importance = squared_variation(a.importance, a.count, weight * a.importance_factor,
                                              a.d_importance, shared);
  const double load = squared_variation(a.load, a.count, weight * a.load_factor, a.d_load, shared);
  if (threadIdx.x != 0) return;
  *a.d_z = weight * a.z_factor / n;
  a.values[0] += balance;
  a.values[1] += counted * a.z_factor * *a.z / n;
  a.values[2] += counted * a.importance_factor * importance;
  a.values[3] += counted * a.load_factor * load;
}

}  // namespace

template <class T>
void router_statistics(Context& gpu, const RouterStatistics& a, const T* scores, const T* logits,
                       const T* weights) {
  constexpr const char* kOp = "router_statistics";
  launch(gpu, kOp, row_values_kernel<T>,
         {.blocks = {blocks_for(a.rows, kWarps)}, .threads = kThreads}, a, scores, logits);
  launch(gpu, kOp, partial_sums_kernel<T>,
         {.blocks = {a.segment_count, a.blocks}, .threads = kThreads}, a, scores, weights);
  const int64_t columns = a.segment_count * (3 * a.count + 3);
  double* const sums = a.partial + a.blocks * columns;
  column_sums(gpu, kOp, sums, a.partial, a.blocks, columns, false);
  launch(gpu, kOp, spread_kernel,
         {.blocks = {blocks_for(a.segment_count * a.count, kThreads)}, .threads = kThreads}, a,
         sums);
}

void router_losses(Context& gpu, const RouterLosses& a) {
  launch(gpu, "router_losses", losses_kernel, {.threads = kLossThreads}, a);
}

template void router_statistics<double>(Context&, const RouterStatistics&, const double*,
                                        const double*, const double*);
template void router_statistics<float>(Context&, const RouterStatistics&, const float*,
                                       const float*, const float*);

}  // namespace trireme::cuda
