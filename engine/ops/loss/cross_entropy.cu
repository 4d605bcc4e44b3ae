#include "engine/ops/backend/kernel.cuda.h"
#include "engine/ops/backend/math.cuda.h"
#include "engine/ops/loss/cross_entropy.kernels.h"

namespace trireme::cuda {
namespace {

constexpr int kThreads = 512;  // a row of 128k float32 logits is 64 loads of 16 bytes for each
constexpr int kSumThreads = 256;

template <class F>
struct SoftmaxSum {
  F largest, total;
};

// Largest of a row's first n logits and sum of exp(logit - largest), in every thread; the row is
// read once. A NaN remains in the sum, and so does an infinite logit, as inf - inf.
template <int N, class F>
__device__ SoftmaxSum<F> softmax_sum(const F* x, int64_t n, F* shared) {
  F largest = kLowest<F>, total = 0;
  const int64_t packs = n / N;
  const auto add = [&](F top, const F(&values)[N]) {
    if (top > largest) {
      total *= exponential(largest - top);
      largest = top;
    }
#pragma unroll
    for (int i = 0; i < N; ++i) total += exponential(values[i] - largest);
  };
#pragma unroll(N > 1 ? 4 : 1)
  for (int64_t p = threadIdx.x; p < packs; p += kThreads) {
    const auto e = reinterpret_cast<const Pack<F, N>*>(x)[p];
    F top = e.v[0];
#pragma unroll
    for (int i = 1; i < N; ++i) top = e.v[i] > top ? e.v[i] : top;
    add(top, e.v);
  }
  if constexpr (N > 1) {
    const int64_t last = packs * N + threadIdx.x;
    if (last < n) {
      const F value = x[last];
      if (value > largest) {
        total *= exponential(largest - value);
        largest = value;
      }
      total += exponential(value - largest);
    }
  }
  const F top = block_max(largest, shared);
  return {top, block_sum(total * exponential(largest - top), shared)};
}

// D: type of the gradient.
template <class F, class D, int N>
__global__ void __launch_bounds__(kThreads) cross_entropy_kernel(cpu::CrossEntropy<F> a) {
  begin_kernel();
  __shared__ F shared[kWarp];
  const int64_t row = blockIdx.x;
  const int32_t target = a.targets[row];
  const F* x = a.logits + row * a.logits_stride;
  D* d = static_cast<D*>(a.d_logits) + row * a.d_stride;
  const bool ignored = target == a.ignored_target;
  int64_t column = target - a.first_column;
  if (column < 0 || column >= a.valid_columns) column = -1;
  F largest = 0, factor = 0, inverse = 0;
  const F scale = static_cast<F>(*a.scale);
  double loss = 0;
  if (!ignored) {
    double total, top, logit;
    if (a.statistics == nullptr) {
      const SoftmaxSum<F> softmax = softmax_sum<N>(x, a.valid_columns, shared);
      total = static_cast<double>(softmax.total);
      top = static_cast<double>(softmax.largest);
      logit = column < 0 ? static_cast<double>(NAN) : static_cast<double>(x[column]);
    } else {
      total = a.statistics[row * 3 + 1];
      top = a.statistics[row * 3];
      logit = a.statistics[row * 3 + 2];
    }
    largest = static_cast<F>(top);
    inverse = F{1} / static_cast<F>(total);
    factor = scale / static_cast<F>(total);
    if (threadIdx.x == 0) loss = log(total) + (top - logit);
  }
  if (threadIdx.x == 0) {
    a.row_loss[row] = loss;
    if (a.token_loss != nullptr) a.token_loss[row] = static_cast<F>(loss);
  }
  if (a.d_logits == nullptr) return;
  __syncthreads();  // until thread 0 has read the target's logit, which may be overwritten
#pragma unroll(N > 1 ? 4 : 1)
  for (int64_t p = threadIdx.x; p < a.columns / N; p += kThreads) {
    Pack<D, N> out{};
    if (!ignored) {
      const auto e = reinterpret_cast<const Pack<F, N>*>(x)[p];
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const int64_t c = p * N + i;
        if (c >= a.valid_columns) continue;
        const F grown = exponential(e.v[i] - largest);
        out.v[i] = static_cast<D>(c == column ? (grown * inverse - F{1}) * scale : grown * factor);
      }
    }
    reinterpret_cast<Pack<D, N>*>(d)[p] = out;
  }
}

template <class F, int N>
__global__ void __launch_bounds__(kThreads) statistics_kernel(cpu::SoftmaxStatistics<F> a) {
  begin_kernel();
  __shared__ F shared[kWarp];
  const int64_t row = blockIdx.x;
  const F* x = a.logits + row * a.logits_stride;
  const SoftmaxSum<F> softmax = softmax_sum<N>(x, a.columns, shared);
  if (threadIdx.x != 0) return;
  const int64_t column = a.targets[row] - a.first_column;
  const bool here = a.targets[row] != a.ignored_target && column >= 0 && column < a.columns;
  double* out = a.statistics + row * 3;
  out[0] = static_cast<double>(softmax.largest);
  out[1] = static_cast<double>(softmax.total);
  out[2] = here ? static_cast<double>(x[column]) : -static_cast<double>(INFINITY);
}

__global__ void __launch_bounds__(kSumThreads)
    merge_kernel(double* merged, const double* parts, int64_t count, int64_t rows) {
  begin_kernel();
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kSumThreads + threadIdx.x;
  if (row >= rows) return;
  double largest = parts[row * 3], target = parts[row * 3 + 2], total = 0;
  for (int64_t p = 1; p < count; ++p) {
    const double* part = parts + (p * rows + row) * 3;
    largest = part[0] > largest ? part[0] : largest;
    target = part[2] > target ? part[2] : target;
  }
  for (int64_t p = 0; p < count; ++p) {
    const double* part = parts + (p * rows + row) * 3;
    total += part[1] * exp(part[0] - largest);
  }
  double* out = merged + row * 3;
  out[0] = largest;
  out[1] = total;
  out[2] = target;
}

// One block: thread i adds values i, i + kAddThreads, ..., then the threads' sums are added.
constexpr int kAddThreads = 1024;
__global__ void __launch_bounds__(kAddThreads)
    add_all_kernel(double* sum, const double* values, int64_t n) {
  begin_kernel();
  __shared__ double shared[kWarp];
  double total = 0;
  for (int64_t i = threadIdx.x; i < n; i += kAddThreads) total += values[i];
  total = block_sum(total, shared);
  if (threadIdx.x == 0) *sum += total;
}

template <class F, class D>
void launch_cross_entropy(Context& gpu, const cpu::CrossEntropy<F>& a) {
  // A power of two divides the OR of the three exactly if it divides each of them.
  const int64_t steps = a.columns | a.logits_stride | a.d_stride;
  with_pack<F>(
      steps,
      [&]<int N>() {
        launch(gpu, "cross_entropy", cross_entropy_kernel<F, D, N>,
               {.blocks = {a.rows}, .threads = kThreads}, a);
      },
      a.logits, static_cast<const D*>(a.d_logits));
}

}  // namespace

template <class F>
void cross_entropy(Context& gpu, const cpu::CrossEntropy<F>& a) {
  if constexpr (std::is_same_v<F, float>) {
    if (a.d_dtype == DType::kBF16) return launch_cross_entropy<F, bf16>(gpu, a);
    if (a.d_dtype == DType::kF16) return launch_cross_entropy<F, f16>(gpu, a);
  }
  launch_cross_entropy<F, F>(gpu, a);
}

template <class F>
void softmax_statistics(Context& gpu, const cpu::SoftmaxStatistics<F>& a) {
  with_pack<F>(
      a.logits_stride,
      [&]<int N>() {
        launch(gpu, "softmax_statistics", statistics_kernel<F, N>,
               {.blocks = {a.rows}, .threads = kThreads}, a);
      },
      a.logits);
}

void merge_softmax_statistics(Context& gpu, double* merged, const double* parts, int64_t count,
                              int64_t rows) {
  launch(gpu, "merge_softmax_statistics", merge_kernel,
         {.blocks = {blocks_for(rows, kSumThreads)}, .threads = kSumThreads}, merged, parts, count,
         rows);
}

void add_all(Context& gpu, double* sum, const double* values, int64_t n) {
  launch(gpu, "loss_sum", add_all_kernel, {.threads = kAddThreads}, sum, values, n);
}

#define TRIREME_INSTANTIATE(F)                                           \
  template void cross_entropy<F>(Context&, const cpu::CrossEntropy<F>&); \
  template void softmax_statistics<F>(Context&, const cpu::SoftmaxStatistics<F>&);
TRIREME_INSTANTIATE(double)
TRIREME_INSTANTIATE(float)

}  // namespace trireme::cuda
