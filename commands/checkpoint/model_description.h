// Description of a model that follows from its configuration alone: features, parameters, memory
// for serving and training. No weight is read or allocated.
#pragma once

#include <cstdint>

#include "engine/config/json.h"
#include "transformer/formats/load_config.h"

namespace trireme {

// Returns the description as JSON. max_model_len: tokens of the sequence whose KV cache is given;
// 0: the longest that the model supports. InputError if the model supports fewer, or if the cache
// of one sequence has more than 2^63 bytes.
Json model_description(const ThirdPartyConfig& model, int64_t max_model_len);

// Prints the description as tables on standard output.
void print_description(const Json& description);

}  // namespace trireme
