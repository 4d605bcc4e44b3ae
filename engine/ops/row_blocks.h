// How many blocks of rows a sum over rows is cut into: a function of the number of rows only, and
// on a GPU of the device.
#pragma once

#include <algorithm>

#include "engine/ops/context.h"

namespace trireme {

// Two blocks of threads for each multiprocessor, so that one computes where the other waits.
inline constexpr int64_t kBlocksOfMultiprocessor = 2;
// Where a block works on one row at a time: as many rows of 2 KiB as the memory's latency asks for.
inline constexpr int64_t kRowsInFlight = 8;

inline int64_t row_blocks(const Ctx& ctx, int64_t rows,
                          int64_t of_multiprocessor = kBlocksOfMultiprocessor) {
  if (ctx.gpu != nullptr)
    return std::clamp<int64_t>(rows, 1, of_multiprocessor * ctx.gpu->info.multiprocessors);
  // Enough blocks for the cores of one rank, and rows enough in each that the partial sums, which
  // stay in cache, cost little beside them.
  constexpr int64_t kMostBlocks = 32, kRowsWorthABlock = 16;
  return std::clamp<int64_t>(rows / kRowsWorthABlock, 1, kMostBlocks);
}

}  // namespace trireme
