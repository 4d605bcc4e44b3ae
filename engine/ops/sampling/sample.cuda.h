// Kernels of engine/ops/sampling/sample.h on a GPU.
#pragma once

#include "engine/device/context.h"

namespace trireme::cuda {

// Logits of a part, which one thread block reads. Independent of the number of rows, so that a
// row's sums have a fixed order.
inline constexpr int64_t kSamplePart = 2048;
inline constexpr int64_t kSampleBins = 512;  // of a row's histogram

inline int64_t sample_parts(int64_t columns) { return (columns + kSamplePart - 1) / kSamplePart; }

struct SampleArgs {
  int32_t* id;
  double* logprob;
  const float* logits;
  const double *temperature, *top_p, *min_p;
  const int64_t *top_k, *seed, *position;
  int64_t rows, columns, stride;  // stride: from one row of logits to the next
  // Scratch of each part of a row (rows, parts): first token's key, smallest finite logit's key,
  // sum of exp(l - largest).
  int64_t* first = nullptr;
  int32_t* smallest = nullptr;
  double* sum = nullptr;
  // Scratch of each bin (rows, kSampleBins): weights, and tokens if top_k counts them.
  int64_t *weights = nullptr, *counts = nullptr;
};

TRIREME_CUDA_DECL void sample_rows(Context& gpu, const SampleArgs& args);

}  // namespace trireme::cuda
