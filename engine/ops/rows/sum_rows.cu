#include "engine/ops/backend/kernel.cuda.h"
#include "engine/ops/rows/sum_rows.cuda.h"

namespace trireme::cuda {
namespace {

constexpr int kThreads = 256;

template <class T>
__global__ void __launch_bounds__(kThreads) sum_rows_kernel(const __grid_constant__ SumRows<T> a) {
  begin_kernel();
  using F = compute_t<T>;
  const int64_t n = a.rows * a.columns, step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < n; i += step) {
    const int64_t row = i / a.columns, column = i % a.columns;
    F sum = to_compute(a.terms[0][row * a.strides[0] + column]);
    if (a.accumulates) sum = a.sum[i] + sum;
    for (int t = 1; t < a.count; ++t) sum += to_compute(a.terms[t][row * a.strides[t] + column]);
    if (a.y != nullptr)
      a.y[row * a.y_stride + column] = static_cast<T>(sum);
    else
      a.sum[i] = sum;
  }
}

}  // namespace

template <class T>
void sum_rows(Context& gpu, const SumRows<T>& args) {
  launch(gpu, "sum_rows", sum_rows_kernel<T>,
         {.blocks = {grid_blocks(gpu, args.rows * args.columns, kThreads)}, .threads = kThreads},
         args);
}

#define TRIREME_INSTANTIATE(T) template void sum_rows<T>(Context&, const SumRows<T>&);
TRIREME_INSTANTIATE(double)
TRIREME_INSTANTIATE(float)
TRIREME_INSTANTIATE(bf16)
TRIREME_INSTANTIATE(f16)

}  // namespace trireme::cuda
