#include <algorithm>

#include "engine/ops/backend/kernel.cuda.h"
#include "engine/ops/optimizer/flat_norm.kernels.h"
#include "engine/ops/optimizer/optimizer_scalars.h"

namespace trireme::cuda {
namespace {

constexpr int kThreads = 256;

// One thread block per block of elements: the sum depends on the number of elements only.
template <class T, int N>
__global__ void __launch_bounds__(kThreads) squares_kernel(double* partial, const T* x, int64_t n) {
  begin_kernel();
  __shared__ double shared[kWarp];
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * cpu::kSquaresBlock;
  const int64_t count = n - begin < cpu::kSquaresBlock ? n - begin : cpu::kSquaresBlock;
  const auto* packs = reinterpret_cast<const Pack<T, N>*>(x + begin);
  double total = 0;
#pragma unroll 4
  for (int64_t p = threadIdx.x; p < count / N; p += kThreads) {
    const Pack<T, N> e = packs[p];
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const auto value = static_cast<double>(to_compute(e.v[i]));
      total += value * value;
    }
  }
  if (const int64_t last = count / N * N + threadIdx.x; last < count) {
    const auto value = static_cast<double>(to_compute(x[begin + last]));
    total += value * value;
  }
  total = block_sum(total, shared);
  if (threadIdx.x == 0) partial[blockIdx.x] = total;
}

__global__ void __launch_bounds__(kThreads)
    add_squares_kernel(double* out, const double* partial, int64_t n) {
  begin_kernel();
  __shared__ double shared[kWarp];
  double total = 0;
  for (int64_t i = threadIdx.x; i < n; i += kThreads) total += partial[i];
  total = block_sum(total, shared);
  if (threadIdx.x == 0) *out += total;
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    find_kernel(int64_t* first, const T* x, int64_t n, int64_t begin, const StepScalars* scalars) {
  begin_kernel();
  if (scalars != nullptr && scalars->skip == 0) return;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < n; i += step) {
    const auto value = to_compute(x[i]);
    if (value - value == 0) continue;
    atomicMin(reinterpret_cast<unsigned long long*>(first),
              static_cast<unsigned long long>(begin + i));
    return;
  }
}

}  // namespace

template <class T>
void sum_of_squares(Context& gpu, double* out, double* partial, const T* x, int64_t n) {
  const int64_t blocks = blocks_for(n, cpu::kSquaresBlock);
  with_pack<T>(
      0,
      [&]<int N>() {
        launch(gpu, "sum_of_squares", squares_kernel<T, N>,
               {.blocks = {blocks}, .threads = kThreads}, partial, x, n);
      },
      x);
  launch(gpu, "sum_of_squares_total", add_squares_kernel, {.threads = kThreads}, out, partial,
         blocks);
}

template <class T>
void find_non_finite(Context& gpu, int64_t* first, const T* x, int64_t n, int64_t begin,
                     const StepScalars* scalars) {
  const int64_t blocks =
      std::min<int64_t>(blocks_for(n, kThreads), int64_t{8} * gpu.info.multiprocessors);
  launch(gpu, "first_non_finite", find_kernel<T>, {.blocks = {blocks}, .threads = kThreads}, first,
         x, n, begin, scalars);
}

#define TRIREME_INSTANTIATE(T)                                                     \
  template void sum_of_squares<T>(Context&, double*, double*, const T*, int64_t);  \
  template void find_non_finite<T>(Context&, int64_t*, const T*, int64_t, int64_t, \
                                   const StepScalars*);
TRIREME_INSTANTIATE(double)
TRIREME_INSTANTIATE(float)
TRIREME_INSTANTIATE(bf16)
TRIREME_INSTANTIATE(f16)

}  // namespace trireme::cuda
