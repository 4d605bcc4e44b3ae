// Keys of config.json about the rotary embedding: "rope_theta", and the object "rope_scaling" or,
// as later versions of transformers write it, "rope_parameters".
#pragma once

#include "engine/config/reader.h"
#include "engine/config/schema.h"
#include "transformer/config/model_config.h"

namespace trireme {

void add_rope_keys(Schema& schema, const char* theta_default);
// Sets config.rope_theta and config.rope_scaling; head_dim and max_positions have been read.
void read_rope_keys(const ConfigValues& values, ModelConfig& config, ConfigReport& report);
// "rope_theta", and "rope_scaling" where there is one.
void write_rope_keys(const ModelConfig& config, Json& json);

// Of models whose layers with a window have frequencies of their own, which are not scaled (Gemma):
// "rope_theta" and "rope_scaling" (linear or none) for the others, "rope_local_base_freq" for
// those; or, as later versions of transformers write it, "rope_parameters" with an object for each,
// "full_attention" and "sliding_attention".
void add_layered_rope_keys(Schema& schema, const char* theta_default, const char* local_default);
void read_layered_rope_keys(const ConfigValues& values, ModelConfig& config, ConfigReport& report);
void write_layered_rope_keys(const ModelConfig& config, Json& json);

}  // namespace trireme
