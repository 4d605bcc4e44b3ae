// Valid ranges of a plan's numbers, for tests and fuzz targets.
#pragma once

#include "serving/distributed/plan_codec.h"

namespace trireme::test {

inline const PlanBounds kPlanBounds{.slots = 4,
                                    .tokens = 12,
                                    .length = 40,
                                    .blocks = 24,
                                    .block_tokens = 4,
                                    .ids = 50,
                                    .mask_words = 2};

// With a window, so that sequences release blocks, and too few blocks for four of the longest.
inline const PlanBounds kWindowBounds = [] {
  PlanBounds bounds = kPlanBounds;
  bounds.length = 90;
  bounds.blocks = 60;
  bounds.windows = {0, 6};
  return bounds;
}();

}  // namespace trireme::test
