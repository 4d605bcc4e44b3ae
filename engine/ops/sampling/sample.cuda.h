// GPU kernels of engine/ops/sampling/sample.h.
#pragma once

#include "engine/device/context.h"

namespace trireme::cuda {

// Logits per part of a row, the last part fewer; one thread block reads a part. Independent of the
// number of rows, so that the sums of a row have a fixed order.
inline constexpr int64_t kSamplePart = 2048;
inline constexpr int64_t kSampleBins = 512;  // bins of a row's histogram

inline int64_t sample_parts(int64_t columns) { return (columns + kSamplePart - 1) / kSamplePart; }

// Operands of sample_rows() in sample.h: logits (rows, columns), the others (rows) each.
struct SampleArgs {
  int32_t* id;
  double* logprob;
  const float* logits;
  const double *temperature, *top_p, *min_p;
  const int64_t *top_k, *seed, *position;
  int64_t rows, columns, stride;  // stride: elements from one row of logits to the next
  // Scratch (rows, parts), keys as in sample_order.cuda.h: per part of a row the token key of its
  // first token in the order; the logit key of its smallest finite logit, 0xffffffff if there is
  // none; and the sum of exp(l - largest logit of the part), 0 if that logit is not finite.
  int64_t* first = nullptr;
  int32_t* smallest = nullptr;
  double* sum = nullptr;
  // Scratch (rows, kSampleBins): sum of the fixed-point weights of each bin (WeightBins in
  // sample_order.cuda.h); number of its tokens if 0 < top_k < columns, else 0.
  int64_t *weights = nullptr, *counts = nullptr;
};

TRIREME_CUDA_DECL void sample_rows(Context& gpu, const SampleArgs& args);

}  // namespace trireme::cuda
