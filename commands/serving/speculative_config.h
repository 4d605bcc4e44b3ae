// Parser of --speculative-config of `trireme serve`: speculative decoding, with vLLM's member
// names.
#pragma once

#include <string>

#include "serving/engine/engine.h"

namespace trireme {

struct SpeculativeOptions {
  SpeculationConfig config;
  std::string draft;  // directory of the draft model; empty: no draft model
};

// Parses the option's JSON; empty: no speculative decoding. InputError names the invalid member.
//   {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 4,
//    "prompt_lookup_min": 2, "disable_by_batch_size": 32}
//   {"method": "draft_model", "model": DIRECTORY, "num_speculative_tokens": 4,
//    "disable_by_batch_size": 32}
// prompt_lookup_max, prompt_lookup_min and disable_by_batch_size are optional, with the defaults of
// SpeculationConfig. The token counts are 1 to 64.
SpeculativeOptions read_speculative_config(const std::string& json_text);

}  // namespace trireme
