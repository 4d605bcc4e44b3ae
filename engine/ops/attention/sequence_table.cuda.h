// Lengths and offsets of sequences, and packed softmax statistics, for cuDNN's attention.
#pragma once

#include <cstdint>

#include "engine/core/device_memory.h"

namespace trireme::cuda {

struct Context;

// For sequences n < `sequences`, with rows cu[n] .. cu[n + 1] of every tensor:
//   lengths[n] = cu[n + 1] - cu[n]      offsets[i][n] = cu[n] * strides[i]
// Entries from `sequences` on are empty sequences that start at cu[sequences]. lengths has `room`
// elements; offsets has room + 1 per stride, one stride after the other. All pointers are device
// pointers.
struct SequenceTable {
  static constexpr int kMaxStrides = 9;  // enough for the tensors of a backward pass
  int32_t* lengths;
  int64_t* offsets;
  const int32_t* cu;
  int64_t sequences, room;
  int64_t strides[kMaxStrides];  // elements from one row of a tensor to the next
  int count;                     // of strides
};
TRIREME_CUDA_DECL void write_sequence_table(Context& gpu, const SequenceTable& table);

// Rows *first .. `rows` of a tensor of `rows` rows, which belong to no sequence (`first` is a
// device pointer). clear_rows() sets their (heads, width) elements to 0, and their entries in `lse`
// (heads, rows), unless null, to -inf. T: float, bf16 or f16.
template <class T>
struct RowsWithoutSequence {
  T* data;
  int64_t row, head;  // strides in elements
  int64_t rows, heads, width;
  const int32_t* first;
  float* lse;
};
template <class T>
TRIREME_CUDA_DECL void clear_rows(Context& gpu, const RowsWithoutSequence<T>& rows);

// to[b, h, t] = from[b, h, t], one float per token t < length of each head of each sequence.
struct StatisticRows {
  float* to;
  const float* from;
  int64_t batch, heads, length;
  int64_t to_batch, to_head, from_batch, from_head;  // strides in elements; tokens are adjacent
};
TRIREME_CUDA_DECL void copy_statistic_rows(Context& gpu, const StatisticRows& rows);

}  // namespace trireme::cuda
