// Parts of a parameter store's flat range, and their uses in a step (parallel/parameter_store.h).
#pragma once

#include "parallel/layout.h"
#include "parallel/shard_map.h"

namespace trireme {

// Unit of sharding: usually a block's whole range of one region. A table that another pipeline
// stage also holds is a tile of its own, so that its shards are the same on both stages.
struct Tile {
  FlatRange range;
  int block = 0;
  Region region = Region::kDense;
};

// Use of a block's values. kBackward: after a forward use in the same step.
enum class StorePass : uint8_t { kForward, kBackward };
struct StoreBlockPass {
  int block = -1;  // -1: none
  StorePass pass = StorePass::kForward;
};

}  // namespace trireme
