// Check for weights that are not finite, which turn every result into NaN.
#pragma once

#include <string>

#include "parallel/parameter_store.h"

namespace trireme {

class Model;

// Returns the first parameter of this rank with elements that are not finite, as "NAME has elements
// that are not finite in float32" (the store's dtype), or "" if there is none. In a sharded store
// checks the rank's own part; skips quantized weights, which are checked while they are quantized.
// adapters: checks adapters only. Reads every value once, in place.
std::string find_non_finite(Ctx& ctx, const ParameterStore& store, bool adapters = false);
// The same for the state of the model's routers (RouterState::saved()); the message ends with "not
// finite".
std::string find_non_finite(const Model& model);

}  // namespace trireme
