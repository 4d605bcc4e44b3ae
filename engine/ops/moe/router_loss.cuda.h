// Kernels of engine/ops/moe/router_loss.h on a GPU. Members named as there have the same shape;
// rows = T, count = E.
#pragma once

#include <algorithm>

#include "engine/device/context.h"

namespace trireme::cuda {

struct RouterStatistics {
  // The sums, as in RouterSums.
  double *counts, *probabilities, *tokens, *importance, *load, *z, *loss_tokens;
  const int32_t *experts, *segments, *targets;  // segments, targets: or null
  int64_t rows, count, k, segment_count;
  int32_t ignored_target;  // kIgnoredTarget
  double* values;          // (2, rows) scratch: 1 / sum of the scores, logsumexp(l)^2
  double* partial;         // (blocks + 1, segment_count, 3 count + 3) scratch; last block: sums
  int64_t blocks;          // blocks of rows
};
// Number of blocks of rows: depends on the sizes only. The kernel has one thread block for each
// (segment, block), about a thousand at most unless there are more segments.
inline int64_t router_blocks(int64_t rows, int64_t segments) {
  constexpr int64_t kRowsWorthABlock = 32, kBlocks = 1024;
  return std::clamp<int64_t>(rows / kRowsWorthABlock, 1, std::max<int64_t>(1, kBlocks / segments));
}
// T: float or double.
template <class T>
TRIREME_CUDA_DECL void router_statistics(Context& gpu, const RouterStatistics& a, const T* scores,
                                         const T* logits, const T* weights);

struct RouterLosses {
  double* values;                                       // (4)
  double *d_probability, *d_importance, *d_load, *d_z;  // RouterSumGradients
  const double *counts, *probabilities, *tokens, *importance, *load, *z, *loss_tokens;
  const double *scale, *shares;  // shares: or null
  int64_t segments, count, k;
  double balance_factor, z_factor, importance_factor, load_factor;  // alpha, beta, gamma, delta
};
TRIREME_CUDA_DECL void router_losses(Context& gpu, const RouterLosses& a);

}  // namespace trireme::cuda
