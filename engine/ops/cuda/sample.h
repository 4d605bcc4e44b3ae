// The kernel of engine/ops/sample.h on a GPU.
#pragma once

#include "engine/device/context.h"

namespace trireme::cuda {

struct SampleArgs {
  int32_t* id;
  double* logprob;
  const float* logits;
  const double *temperature, *top_p, *min_p;
  const int64_t *top_k, *seed, *position;
  int64_t rows, columns, stride;  // stride: from one row of logits to the next
};

TRIREME_CUDA_DECL void sample_rows(Context& gpu, const SampleArgs& args);

}  // namespace trireme::cuda
