// Normally distributed random numbers: the initial values of weights.
#pragma once

#include "engine/core/element_index.h"
#include "engine/core/random.h"
#include "engine/ops/context.h"

namespace trireme {

// y[i] = deviation z(key, index.of(i)), z standard normal (engine/core/normal_number.h).
//   y (n)  any float dtype, contiguous; 16-bit types are rounded via float32
// log, sin and cos of a GPU may differ from the CPU's in the last bits of a float64: after rounding
// to a narrower type nearly all values are equal, and the others are adjacent.
void fill_normal(Ctx& ctx, const Tensor& y, const RandomKey& key, double deviation,
                 const ElementIndex& index);

}  // namespace trireme
