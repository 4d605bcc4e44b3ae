// CUDA implementations of decide_step() and gradient_scale() (optim/step_control.h). All pointers
// are to GPU memory.
#pragma once

#include "engine/device/context.h"
#include "optim/step_state.h"

namespace trireme::cuda {

TRIREME_CUDA_DECL void decide_step(Context& gpu, StepScalars* scalars, StepState* state,
                                   const double* sum_of_squares, const double* loss_sum,
                                   const StepDecision& decision);
TRIREME_CUDA_DECL void gradient_scale(Context& gpu, double* scale, const StepState* state,
                                      int64_t valid_tokens);

}  // namespace trireme::cuda
