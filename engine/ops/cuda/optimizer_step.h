// GPU kernels of engine/ops/optimizer_step.h. The step's scalars stay on the device: each thread
// block computes the coefficients that the CPU kernels get as arguments.
#pragma once

#include "engine/device/context.h"
#include "engine/ops/cpu/flat_norm.h"
#include "engine/ops/cpu/optimizer_step.h"

namespace trireme::cuda {

// range.key is not yet specific to an update: the kernel adds the count.
template <class Rule, class T>
struct RuleStep {
  cpu::UpdateRange<T> range;
  const StepScalars* scalars;
  typename Rule::Args args;
};

template <class Rule, class T>
TRIREME_CUDA_DECL void apply_rule(Context& gpu, const RuleStep<Rule, T>& a);

// *out += sum of x^2; partial: one value for each cpu::kSquaresBlock elements.
template <class T>
TRIREME_CUDA_DECL void sum_of_squares(Context& gpu, double* out, double* partial, const T* x,
                                      int64_t n);
// *first = begin + the smallest index of a non-finite element, if that is less. scalars: null, or
// nothing happens unless they mark the step as skipped.
template <class T>
TRIREME_CUDA_DECL void find_non_finite(Context& gpu, int64_t* first, const T* x, int64_t n,
                                       int64_t begin, const StepScalars* scalars);

}  // namespace trireme::cuda
