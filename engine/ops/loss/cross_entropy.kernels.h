// Kernels of engine/ops/loss/cross_entropy.h. The targets of CPU kernels have been checked.
#pragma once

#include "engine/core/device_memory.h"
#include "engine/core/dtype.h"
#include "engine/ops/backend/isa.h"

namespace trireme::cpu {

// T: type of the logits, float or double.
template <class T>
struct CrossEntropy {
  double* row_loss;                      // (rows)
  T* token_loss;                         // (rows) or null
  void* d_logits;                        // (rows, columns) or null; may be the logits
  DType d_dtype;                         // of d_logits
  const T* logits;                       // (rows, columns)
  const int32_t* targets;                // (rows)
  int64_t rows, columns, valid_columns;  // columns from valid_columns on are padding
  int64_t logits_stride, d_stride;       // row strides in elements
  const double* scale;                   // (1)
  int32_t ignored_target;
  // For part of the vocabulary: the (rows, 3) statistics of the whole rows, and the global number
  // of the first column. Null and 0 if the logits are the whole rows.
  const double* statistics;
  int64_t first_column;
};

template <class T>
struct SoftmaxStatistics {
  double* statistics;      // (rows, 3): largest logit, sum of exp(logit - largest), target's logit
  const T* logits;         // (rows, columns), row stride `logits_stride` in elements
  const int32_t* targets;  // (rows)
  int64_t rows, columns, logits_stride, first_column;  // first_column: as in CrossEntropy
  int32_t ignored_target;
};

TRIREME_CPU_KERNEL(cross_entropy, (const CrossEntropy<T>& a, int threads))
TRIREME_CPU_KERNEL(softmax_statistics, (const SoftmaxStatistics<T>& a, int threads))

}  // namespace trireme::cpu

// GPU kernels: the first two with the arguments of the CPU kernels, the others for GPUs only. An
// invalid target is never used as an address: it makes its row's loss NaN or infinite.
namespace trireme::cuda {

struct Context;  // engine/device/context.h

// T: float or double.
template <class T>
TRIREME_CUDA_DECL void cross_entropy(Context& gpu, const cpu::CrossEntropy<T>& a);
template <class T>
TRIREME_CUDA_DECL void softmax_statistics(Context& gpu, const cpu::SoftmaxStatistics<T>& a);
// merged (rows, 3) from parts (count, rows, 3), in order of the parts.
TRIREME_CUDA_DECL void merge_softmax_statistics(Context& gpu, double* merged, const double* parts,
                                                int64_t count, int64_t rows);
// *sum += values[0] + values[1] + ..., in an order that depends on n alone.
TRIREME_CUDA_DECL void add_all(Context& gpu, double* sum, const double* values, int64_t n);

}  // namespace trireme::cuda
