// Index of a shard's elements in the whole, logical tensor.
#pragma once

#include <cstdint>

#include "engine/core/host_device.h"

namespace trireme {

// Maps element i of a range to its index in the flattened logical tensor. The range starts at
// `offset` in a flattened box whose rows are `stride` elements apart in that tensor. Random numbers
// keyed by this index are the same in every layout of ranks.
struct ElementIndex {
  int64_t first = 0;   // index of the box's first element
  int64_t width = 0;   // elements per row; 0: one row
  int64_t stride = 0;  // elements from one row to the next
  int64_t offset = 0;  // start of the range in the box
  TRIREME_HOST_DEVICE int64_t of(int64_t i) const {
    const int64_t o = offset + i;
    return width == 0 ? first + o : first + o / width * stride + o % width;
  }
};

}  // namespace trireme
