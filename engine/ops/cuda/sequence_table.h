// Lengths and offsets of sequences, and packed statistics of the softmax, for cuDNN's attention.
#pragma once

#include <cstdint>

#include "engine/core/device_memory.h"

namespace trireme::cuda {

struct Context;

// Of sequence n < sequences, which has the rows cu[n] .. cu[n + 1] of every tensor:
//   lengths[n] = cu[n + 1] - cu[n]      offsets[i][n] = cu[n] * strides[i]
// and up to `room` sequences more without rows, which lie at the end; offsets have room + 1
// elements, one behind the other. All pointers are the device's.
struct SequenceTable {
  static constexpr int kMostStrides = 9;  // a backward has so many tensors
  int32_t* lengths;
  int64_t* offsets;
  const int32_t* cu;
  int64_t sequences, room;
  int64_t strides[kMostStrides];  // elements from one row of a tensor to the next
  int count;                      // of strides
};
TRIREME_CUDA_DECL void write_sequence_table(Context& gpu, const SequenceTable& table);

// The rows from *first on, of `rows`: `heads` parts of `width` elements become 0, and what `lse`
// (heads, rows) has of them -inf; null: there is none. T: float, bf16 or f16.
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

// to[b, h, t] = from[b, h, t], a float of each token t < length of each head of each sequence.
struct StatisticRows {
  float* to;
  const float* from;
  int64_t batch, heads, length;
  int64_t to_batch, to_head, from_batch, from_head;  // strides in elements; tokens are adjacent
};
TRIREME_CUDA_DECL void copy_statistic_rows(Context& gpu, const StatisticRows& rows);

}  // namespace trireme::cuda
