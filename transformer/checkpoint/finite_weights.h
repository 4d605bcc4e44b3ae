// Weights that are not finite: whoever computes with one gets NaN in every answer.
#pragma once

#include <string>

#include "parallel/parameter_store.h"

namespace trireme {

// The first parameter of this rank that has elements which are not finite, as "NAME has elements
// that are not finite in float32"; empty: there is none. Of a sharded store the rank's own part is
// read. Weights in fewer bits are left out: what makes them checks their scales. adapters: of these
// alone. Reads every value once, where they lie.
std::string find_non_finite(Ctx& ctx, const ParameterStore& store, bool adapters = false);

}  // namespace trireme
