#include "engine/ops/backend/kernel.cuda.h"
#include "engine/ops/gemm/fill_rows.cuda.h"

namespace trireme::cuda {
namespace {

constexpr int kThreads = 256;

template <class T>
__global__ void __launch_bounds__(kThreads)
    fill_rows_kernel(T* c, const T* row, int64_t rows, int64_t columns, int64_t stride) {
  begin_kernel();
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (column >= columns) return;
  const T value = row != nullptr ? row[column] : T{};
  for (int64_t r = blockIdx.y; r < rows; r += gridDim.y) c[r * stride + column] = value;
}

}  // namespace

template <class T>
void fill_rows(Context& gpu, T* c, const T* row, int64_t rows, int64_t columns, int64_t stride) {
  constexpr int64_t kMaxRowBlocks = 1024;
  const Grid grid{
      .blocks = {blocks_for(columns, kThreads), rows < kMaxRowBlocks ? rows : kMaxRowBlocks, 1},
      .threads = kThreads};
  launch(gpu, "fill_rows", fill_rows_kernel<T>, grid, c, row, rows, columns, stride);
}

#define TRIREME_INSTANTIATE(T) \
  template void fill_rows<T>(Context&, T*, const T*, int64_t, int64_t, int64_t);
TRIREME_INSTANTIATE(double)
TRIREME_INSTANTIATE(float)
TRIREME_INSTANTIATE(bf16)
TRIREME_INSTANTIATE(f16)

}  // namespace trireme::cuda
