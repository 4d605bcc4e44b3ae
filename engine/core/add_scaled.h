// y += factor * x on the host, for callers in sources that are compiled without vectorization.
#pragma once

#include <cstdint>

namespace trireme {

// y, x: `count` contiguous elements each, disjoint. On x86-64 the product is rounded before the
// sum, since this file is compiled without fused multiply-add.
void add_scaled(float* y, const float* x, float factor, int64_t count);

}  // namespace trireme
