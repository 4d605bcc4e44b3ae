// Weights that are not finite, with which every result is NaN.
#pragma once

#include <string>

#include "parallel/parameter_store.h"

namespace trireme {

class Model;

// First parameter of this rank that has elements which are not finite, as "NAME has elements that
// are not finite in float32"; empty: there is none. Of a sharded store the rank's own part is read,
// and no weights in fewer bits: they are checked as they are made. adapters: these alone. Reads
// every value once, where they lie.
std::string find_non_finite(Ctx& ctx, const ParameterStore& store, bool adapters = false);
// The same of what the routers of a model hold beside their parameters.
std::string find_non_finite(const Model& model);

}  // namespace trireme
