#include "engine/ops/attention/sequence_table.cuda.h"
#include "engine/ops/backend/kernel.cuda.h"

namespace trireme::cuda {
namespace {

constexpr int kThreads = 128;

__global__ void __launch_bounds__(kThreads) table_kernel(SequenceTable t) {
  begin_kernel();
  const int64_t n = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (n > t.room) return;
  const int64_t begin = t.cu[n < t.sequences ? n : t.sequences];
  if (n < t.room) t.lengths[n] = n < t.sequences ? static_cast<int32_t>(t.cu[n + 1] - begin) : 0;
#pragma unroll
  for (int i = 0; i < SequenceTable::kMaxStrides; ++i)
    if (i < t.count) t.offsets[i * (t.room + 1) + n] = begin * t.strides[i];
}

template <class T>
__global__ void __launch_bounds__(kThreads) clear_kernel(RowsWithoutSequence<T> a) {
  begin_kernel();
  const int64_t head = blockIdx.y;
  for (int64_t row = *a.first + static_cast<int64_t>(blockIdx.x); row < a.rows; row += gridDim.x) {
    T* const to = a.data + row * a.row + head * a.head;
    for (int64_t d = threadIdx.x; d < a.width; d += kThreads) to[d] = T(0.0f);
    if (a.lse != nullptr && threadIdx.x == 0) a.lse[head * a.rows + row] = -__builtin_inff();
  }
}

__global__ void __launch_bounds__(kThreads) statistic_kernel(StatisticRows a) {
  begin_kernel();
  const int64_t t = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (t >= a.length) return;
  const int64_t to = blockIdx.y * a.to_head + t, from = blockIdx.y * a.from_head + t;
  for (int64_t sequence = blockIdx.z; sequence < a.batch; sequence += gridDim.z)
    a.to[sequence * a.to_batch + to] = a.from[sequence * a.from_batch + from];
}

}  // namespace

void copy_statistic_rows(Context& gpu, const StatisticRows& rows) {
  constexpr int64_t kMaxSequences = 1024;  // in parallel
  const int64_t sequences = rows.batch < kMaxSequences ? rows.batch : kMaxSequences;
  launch(
      gpu, "statistic_rows", statistic_kernel,
      {.blocks = {blocks_for(rows.length, kThreads), rows.heads, sequences}, .threads = kThreads},
      rows);
}

void write_sequence_table(Context& gpu, const SequenceTable& table) {
  launch(gpu, "sequence_table", table_kernel,
         {.blocks = {blocks_for(table.room + 1, kThreads)}, .threads = kThreads}, table);
}

template <class T>
void clear_rows(Context& gpu, const RowsWithoutSequence<T>& rows) {
  constexpr int64_t kBlocks = 64;  // such rows are few, if any
  launch(gpu, "clear_rows", clear_kernel<T>,
         {.blocks = {kBlocks < rows.rows ? kBlocks : rows.rows, rows.heads}, .threads = kThreads},
         rows);
}

template void clear_rows<float>(Context&, const RowsWithoutSequence<float>&);
template void clear_rows<bf16>(Context&, const RowsWithoutSequence<bf16>&);
template void clear_rows<f16>(Context&, const RowsWithoutSequence<f16>&);

}  // namespace trireme::cuda
