// How many blocks of rows a sum over rows is cut into: a function of the number of rows only, and on a
// GPU of the device.
#pragma once

#include <algorithm>

#include "engine/ops/context.h"

namespace trireme {

inline int64_t row_blocks(const Ctx& ctx, int64_t rows) {
  if (ctx.gpu != nullptr) {
    // Two blocks of threads for each multiprocessor, so that one computes where the other waits.
    constexpr int64_t kBlocksAMultiprocessor = 2;
    return std::clamp<int64_t>(rows, 1, kBlocksAMultiprocessor * ctx.gpu->info.multiprocessors);
  }
  // Enough blocks for the cores of one rank, and rows enough in each that the partial sums, which
  // stay in cache, cost little beside them.
  constexpr int64_t kMostBlocks = 32, kRowsWorthABlock = 16;
  return std::clamp<int64_t>(rows / kRowsWorthABlock, 1, kMostBlocks);
}

}  // namespace trireme
