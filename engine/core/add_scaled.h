// y += factor x on the host, for sources that are compiled without vectorisation.
#pragma once

#include <cstdint>

namespace trireme {

// y, x: `count` contiguous elements each, disjoint. Product and sum are rounded one after the other.
void add_scaled(float* y, const float* x, float factor, int64_t count);

}  // namespace trireme
