// Conversion between the float types of tensors: the same values on the CPU and on a GPU. Only the
// bits of a NaN may differ.
#pragma once

#include <type_traits>

#include "engine/core/float16.h"

namespace trireme {

// float64 to float32 such that rounding the result to a narrower type equals one direct rounding
// from float64: towards zero, with the last bit set if anything was lost ("round to odd").
TRIREME_HOST_DEVICE [[gnu::always_inline]] inline float round_to_odd(double x) {
  const float nearest = static_cast<float>(x);
  const double back = static_cast<double>(nearest);
  if (back == x || x != x) return nearest;
  uint32_t bits = std::bit_cast<uint32_t>(nearest);
  if ((back > 0 ? back : -back) > (x > 0 ? x : -x)) --bits;
  return std::bit_cast<float>(bits | 1u);
}

// Conversion with a single rounding, to nearest even.
template <class To, class From>
TRIREME_HOST_DEVICE [[gnu::always_inline]] inline To convert_float(From x) {
  if constexpr (std::is_same_v<From, double> && sizeof(To) == 2)
    return To(round_to_odd(x));
  else if constexpr (sizeof(From) == 2 || sizeof(To) == 2)
    return static_cast<To>(static_cast<float>(x));
  else
    return static_cast<To>(x);
}

}  // namespace trireme
