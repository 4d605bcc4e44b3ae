// --speculative-config of `trireme serve`, in vLLM's words.
#pragma once

#include <string>

#include "serving/engine/engine.h"

namespace trireme {

// {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 4, "prompt_lookup_min": 2,
//  "disable_by_batch_size": 32}, of which the last three may be absent. Empty: no speculation. InputError names the
// member that is wrong.
SpeculationConfig read_speculative_config(const std::string& json_text);

}  // namespace trireme
