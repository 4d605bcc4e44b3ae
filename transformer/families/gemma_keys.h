// Keys of config.json that Gemma models share: norms with 1 + w before and after attention and MLP,
// GELU gates, a tied head, an embedding times sqrt(hidden_size), a softmax scale of their own, a
// soft cap of the logits.
#pragma once

#include "transformer/families/common_keys.h"

namespace trireme {

void add_gemma_keys(Schema& schema, const LlamaDefaults& preset, const char* logits_cap);
void read_gemma_keys(const ConfigValues& values, ModelConfig& config, ConfigReport& report);
void write_gemma_keys(const ModelConfig& config, Json& json);
// Adds the key of a soft cap; null: none. soft_cap_json() returns its value; null for a cap of 0.
void add_soft_cap(Schema& schema, const char* key, const char* preset, const char* help);
Json soft_cap_json(double cap);

}  // namespace trireme
