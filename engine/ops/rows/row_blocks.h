// Number of row blocks in a sum over rows. On the CPU it depends only on the number of rows; on a
// GPU also on the number of multiprocessors and on `per_multiprocessor`.
#pragma once

#include <algorithm>

#include "engine/ops/context.h"

namespace trireme {

// Two thread blocks per multiprocessor, so that one computes while the other waits.
inline constexpr int64_t kBlocksPerMultiprocessor = 2;
// Thread blocks per multiprocessor for kernels whose blocks have one row in flight each: so many
// rows of 2 KiB hide the memory latency.
inline constexpr int64_t kRowsInFlight = 8;

// Returns at least 1, also for 0 rows.
inline int64_t row_blocks(const Ctx& ctx, int64_t rows,
                          int64_t per_multiprocessor = kBlocksPerMultiprocessor) {
  if (ctx.gpu != nullptr)
    return std::clamp<int64_t>(rows, 1, per_multiprocessor * ctx.gpu->info.multiprocessors);
  // Enough blocks for the cores of one rank, and enough rows in each that the partial sums, which
  // stay in cache, cost little in comparison.
  constexpr int64_t kMaxBlocks = 32, kRowsWorthABlock = 16;
  return std::clamp<int64_t>(rows / kRowsWorthABlock, 1, kMaxBlocks);
}

}  // namespace trireme
