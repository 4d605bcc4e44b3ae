// How many blocks of rows a sum over rows is cut into: a function of the number of rows only.
#pragma once

#include <algorithm>
#include <cstdint>

namespace trireme {

// Enough blocks for the cores of one rank, and rows enough in each that the partial sums, which
// stay in cache, cost little beside them.
inline int64_t row_blocks(int64_t rows) {
  constexpr int64_t kMostBlocks = 32, kRowsWorthABlock = 16;
  return std::clamp<int64_t>(rows / kRowsWorthABlock, 1, kMostBlocks);
}

}  // namespace trireme
