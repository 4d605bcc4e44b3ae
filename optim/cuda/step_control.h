// decide_step() of optim/step_control.h on a GPU.
#pragma once

#include "engine/device/context.h"
#include "optim/step_state.h"

namespace trireme::cuda {

TRIREME_CUDA_DECL void decide_step(Context& gpu, StepScalars* scalars, StepState* state,
                                   const double* sum_of_squares, const double* loss_sum,
                                   const StepDecision& decision);

}  // namespace trireme::cuda
