// Keys of config.json about the rotary embedding: "rope_theta", and the object "rope_scaling" or,
// in later versions of transformers, "rope_parameters".
#pragma once

#include "engine/config/reader.h"
#include "engine/config/schema.h"
#include "transformer/config/model_config.h"

namespace trireme {

void add_rope_keys(Schema& schema, const char* theta_default);
// Sets config.rope_theta and config.rope_scaling. Requires head_dim and max_positions to be read
// before.
void read_rope_keys(const ConfigValues& values, ModelConfig& config, ConfigReport& report);
// "rope_theta", and "rope_scaling" where the frequencies are scaled.
void write_rope_keys(const ModelConfig& config, Json& json);

// Models whose layers with a window have their own, unscaled frequencies (Gemma): "rope_theta" and
// "rope_scaling" (linear or none) for the other layers, "rope_local_base_freq" for those with a
// window; or, in later versions of transformers, "rope_parameters" with an object for each kind,
// "full_attention" and "sliding_attention".
void add_layered_rope_keys(Schema& schema, const char* theta_default, const char* local_default);
void read_layered_rope_keys(const ConfigValues& values, ModelConfig& config, ConfigReport& report);
void write_layered_rope_keys(const ModelConfig& config, Json& json);

}  // namespace trireme
