// --speculative-config of `trireme serve`, in vLLM's words.
#pragma once

#include <string>

#include "serving/engine/engine.h"

namespace trireme {

struct SpeculativeOptions {
  SpeculationConfig config;
  std::string draft;  // directory of the model that guesses; empty: guesses come from the text
};

// {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 4, "prompt_lookup_min": 2,
//  "disable_by_batch_size": 32}, of which the last three may be absent, or
// {"method": "draft_model", "model": DIRECTORY, "num_speculative_tokens": 4,
// "disable_by_batch_size": 32}, of which the last may. Empty: no speculation. InputError names the
// member that is wrong.
SpeculativeOptions read_speculative_config(const std::string& json_text);

}  // namespace trireme
