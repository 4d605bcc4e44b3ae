// Standard normal numbers from random words, by Box-Muller in double precision.
#pragma once

#include <numbers>

#include "engine/core/random.h"

namespace trireme {

// Standard normal number `index` of the key's stream.
double philox_normal(const RandomKey& key, uint64_t index);

// The same, for CPU and GPU kernels. On a GPU the last bit may differ (log, sin and cos).
TRIREME_HOST_DEVICE inline double normal_number(const RandomKey& key, uint64_t index) {
  // One block yields two 53-bit uniforms, in (0, 1] for the radius and in [0, 1) for the angle, and
  // from them a pair of normals.
  const PhiloxBlock b = philox(key, index / 2);
  const auto join = [](uint32_t hi, uint32_t lo) {
    return (static_cast<uint64_t>(hi) << 32 | lo) >> 11;
  };
  const double radius_uniform = static_cast<double>(join(b[0], b[1]) + 1) * 0x1p-53;
  const double angle_uniform = static_cast<double>(join(b[2], b[3])) * 0x1p-53;
  const double radius = std::sqrt(-2.0 * std::log(radius_uniform));
#ifdef __CUDA_ARCH__
  // cos() reduces its argument through local memory; cospi() does not.
  return radius * (index % 2 == 0 ? cospi(2.0 * angle_uniform) : sinpi(2.0 * angle_uniform));
#else
  const double angle = 2.0 * std::numbers::pi * angle_uniform;
  return index % 2 == 0 ? radius * std::cos(angle) : radius * std::sin(angle);
#endif
}

}  // namespace trireme
