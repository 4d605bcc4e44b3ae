// Where the elements of a part of a tensor lie in the whole, logical tensor.
#pragma once

#include <cstdint>

#include "engine/core/host_device.h"

namespace trireme {

// Index in the flattened logical tensor of element i of a range: the range is a part, from `offset`
// on, of a flattened box whose rows lie `stride` apart there. Random numbers keyed by it are the
// same in every layout of ranks.
struct ElementIndex {
  int64_t first = 0;   // index of the box's first element
  int64_t width = 0;   // elements of a row; 0: one row
  int64_t stride = 0;  // from one row to the next
  int64_t offset = 0;  // of the range in the box
  TRIREME_HOST_DEVICE int64_t of(int64_t i) const {
    const int64_t o = offset + i;
    return width == 0 ? first + o : first + o / width * stride + o % width;
  }
};

}  // namespace trireme
