// GPU kernels of engine/ops/cross_entropy.h, with the arguments of the CPU kernels. An invalid
// target is never used as an address: it makes its row's loss NaN or infinite.
#pragma once

#include "engine/device/context.h"
#include "engine/ops/cpu/cross_entropy.h"

namespace trireme::cuda {

// T: float or double.
template <class T>
TRIREME_CUDA_DECL void cross_entropy(Context& gpu, const cpu::CrossEntropy<T>& a);
template <class T>
TRIREME_CUDA_DECL void softmax_statistics(Context& gpu, const cpu::SoftmaxStatistics<T>& a);
TRIREME_CUDA_DECL void merge_softmax_statistics(Context& gpu, double* merged, const double* parts,
                                                int64_t count, int64_t rows);
// *sum += values[0] + values[1] + ..., in an order that depends on n alone.
TRIREME_CUDA_DECL void add_all(Context& gpu, double* sum, const double* values, int64_t n);

}  // namespace trireme::cuda
