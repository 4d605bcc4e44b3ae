// Rotary embedding keys of config.json: "rope_theta", and the object "rope_scaling" or, in later
// versions of transformers, "rope_parameters".
#pragma once

#include "engine/config/reader.h"
#include "engine/config/schema.h"
#include "transformer/config/model_config.h"

namespace trireme {

// transformers' defaults.
struct RopeDefaults {
  const char* theta = "10000";
  const char* rotary_factor = "";  // "partial_rotary_factor"; "": it must be 1
};
void add_rope_keys(Schema& schema, const RopeDefaults& preset);
// Sets config.rope_theta, config.rotary_dim and config.rope_scaling. Requires head_dim and
// max_positions to be read before. original_positions: original length from a key outside the
// object, from which the one in the object must not differ; 0: none.
void read_rope_keys(const ConfigValues& values, ModelConfig& config, ConfigReport& report,
                    int64_t original_positions = 0);
// Returns whether the configuration has an object "rope_scaling" or "rope_parameters" with a key of
// the scaling or with "rope_theta".
bool gives_rope_object(const ConfigValues& values);
// Reports an error if rope_theta is at most 1: yarn divides by its logarithm.
void check_yarn_base(const ConfigValues& values, const ModelConfig& config, ConfigReport& report);
// Writes "rope_theta", "rope_scaling" if the frequencies are scaled, and "partial_rotary_factor" if
// only a part of each head is rotated.
void write_rope_keys(const ModelConfig& config, Json& json);

// Layers without rotary positions: those with a 0 in "no_rope_layers" (others have a 1), by default
// every "no_rope_layer_interval"-th. Requires num_layers to be read before.
void add_rope_layer_keys(Schema& schema);
void read_rope_layer_keys(const ConfigValues& values, ModelConfig& config, ConfigReport& report);
void write_rope_layer_keys(const ModelConfig& config, Json& json);

// Models whose layers with a window have unscaled frequencies (OLMo 3): "rope_theta" and
// "rope_scaling" for the other layers, "rope_parameters.sliding_attention.rope_theta" for those
// with a window, by default the family's base, regardless of "rope_theta"; or "rope_parameters"
// with an object for each kind. Requires the windows to be read before.
void add_windowed_rope_keys(Schema& schema, const char* theta_default);
void read_windowed_rope_keys(const ConfigValues& values, ModelConfig& config, ConfigReport& report);
void write_windowed_rope_keys(const ModelConfig& config, Json& json);

// Models whose layers with a window have their own, unscaled frequencies (Gemma): "rope_theta" and
// "rope_scaling" (linear or none) for the other layers, "rope_local_base_freq" for those with a
// window; or, in later versions of transformers, "rope_parameters" with an object for each kind,
// "full_attention" and "sliding_attention". Requires the windows to be read before.
void add_layered_rope_keys(Schema& schema, const char* theta_default, const char* local_default);
void read_layered_rope_keys(const ConfigValues& values, ModelConfig& config, ConfigReport& report);
void write_layered_rope_keys(const ModelConfig& config, Json& json);

}  // namespace trireme
