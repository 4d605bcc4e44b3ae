// Column sums of a matrix on a GPU. The caller's kernel writes a row of partial sums for each block
// of rows; column_sums() adds these in a fixed order. For CUDA sources only.
#pragma once

#include "engine/ops/backend/kernel.cuda.h"

namespace trireme::cuda {

// First row of block b of `blocks`; `rows` for b = blocks. The block ends before the first row of
// block b + 1.
__device__ inline int64_t first_row(int64_t b, int64_t blocks, int64_t rows) {
  return rows * b / blocks;
}

inline constexpr int kSumColumns = 32, kSumGroups = 8;  // per thread block of column_sums_kernel

// out[c] = sum over b of partial[b * columns + c], or += if `accumulate`. Group g of a thread block
// adds b = g, g + kSumGroups, ...; then the sums of the groups are added in order.
template <class F>
__global__ void __launch_bounds__(kSumColumns* kSumGroups)
    column_sums_kernel(F* out, const F* partial, int64_t blocks, int64_t columns, bool accumulate) {
  begin_kernel();
  __shared__ F sums[kSumGroups][kSumColumns];
  const int lane = static_cast<int>(threadIdx.x) % kSumColumns;
  const int group = static_cast<int>(threadIdx.x) / kSumColumns;
  const int64_t c = static_cast<int64_t>(blockIdx.x) * kSumColumns + lane;
  F total = 0;
  if (c < columns)
    for (int64_t b = group; b < blocks; b += kSumGroups) total += partial[b * columns + c];
  sums[group][lane] = total;
  __syncthreads();
  if (group > 0 || c >= columns) return;
  for (int g = 1; g < kSumGroups; ++g) total += sums[g][lane];
  out[c] = accumulate ? out[c] + total : total;
}

// Launches the kernel. out (columns), partial (blocks, columns); op: name of the launch.
template <class F>
void column_sums(Context& gpu, const char* op, F* out, const F* partial, int64_t blocks,
                 int64_t columns, bool accumulate) {
  launch(gpu, op, column_sums_kernel<F>,
         {.blocks = {blocks_for(columns, kSumColumns)}, .threads = kSumColumns * kSumGroups}, out,
         partial, blocks, columns, accumulate);
}

}  // namespace trireme::cuda
