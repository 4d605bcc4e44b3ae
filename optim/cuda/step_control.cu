#include "engine/device/launch.h"
#include "optim/cuda/step_control.h"

namespace trireme::cuda {
namespace {

constexpr int kThreads = 32;  // one warp, of which only thread 0 works

__global__ void __launch_bounds__(kThreads)
    decide_kernel(StepScalars* scalars, StepState* state, const double* sum_of_squares,
                  const double* loss_sum, StepDecision decision) {
  begin_kernel();
  if (threadIdx.x != 0) return;
  StepState next = *state;
  *scalars = decide(next, *sum_of_squares, *loss_sum, decision);
  *state = next;
}

__global__ void __launch_bounds__(kThreads)
    scale_kernel(double* scale, const StepState* state, int64_t valid_tokens) {
  begin_kernel();
  if (threadIdx.x == 0) scale_gradient(scale, *state, valid_tokens);
}

}  // namespace

void decide_step(Context& gpu, StepScalars* scalars, StepState* state, const double* sum_of_squares,
                 const double* loss_sum, const StepDecision& decision) {
  launch(gpu, "decide_step", decide_kernel, {.threads = kThreads}, scalars, state, sum_of_squares,
         loss_sum, decision);
}

void gradient_scale(Context& gpu, double* scale, const StepState* state, int64_t valid_tokens) {
  launch(gpu, "gradient_scale", scale_kernel, {.threads = kThreads}, scale, state, valid_tokens);
}

}  // namespace trireme::cuda
