#include "engine/core/normal_number.h"
#include "engine/ops/backend/kernel.cuda.h"
#include "engine/ops/rows/fill_normal.cuda.h"

namespace trireme::cuda {
namespace {

constexpr int kThreads = 256;

template <class T>
__global__ void __launch_bounds__(kThreads)
    fill_normal_kernel(const __grid_constant__ FillNormal<T> a) {
  begin_kernel();
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < a.n; i += step) {
    const double z = normal_number(a.key, static_cast<uint64_t>(a.index.of(i)));
    a.y[i] = static_cast<T>(static_cast<compute_t<T>>(a.deviation * z));
  }
}

}  // namespace

template <class T>
void fill_normal(Context& gpu, const FillNormal<T>& args) {
  launch(gpu, "fill_normal", fill_normal_kernel<T>,
         {.blocks = {grid_blocks(gpu, args.n, kThreads)}, .threads = kThreads}, args);
}

#define TRIREME_INSTANTIATE(T) template void fill_normal<T>(Context&, const FillNormal<T>&);
TRIREME_INSTANTIATE(double)
TRIREME_INSTANTIATE(float)
TRIREME_INSTANTIATE(bf16)
TRIREME_INSTANTIATE(f16)

}  // namespace trireme::cuda
