// Kernels of engine/ops/embedding.h. The ids have been checked.
#pragma once

#include "engine/core/dtype.h"
#include "engine/ops/cpu/isa.h"

namespace trireme::cpu {

template <class T>
struct EmbeddingForward {
  T* y;
  const T* table;
  const int32_t* ids;
  int64_t rows, columns;
  int64_t first_entry, entries;  // the table's part of the vocabulary
  int64_t vocabulary;
  bool accumulate;
};

template <class T>
struct EmbeddingBackward {
  compute_t<T>* d_table;
  const T* dy;
  const int32_t* ids;
  int64_t rows, columns;
  int64_t first_entry, entries;
};

TRIREME_CPU_KERNEL(embedding_forward, (const EmbeddingForward<T>& a, int threads))
// d_table[ids[t]] += dy[t]
TRIREME_CPU_KERNEL(embedding_backward, (const EmbeddingBackward<T>& a, int threads))

}  // namespace trireme::cpu
