// Keys of config.json about sliding windows. A window of 0 in a layer that has one is an error: no
// token sees any there, and transformers fails with it.
#pragma once

#include "engine/config/reader.h"
#include "engine/config/schema.h"
#include "transformer/config/model_config.h"

namespace trireme {

// Mistral's: "sliding_window" for all layers, null for none.
void add_window_key(Schema& schema, const char* preset);
void read_window_key(const ConfigValues& values, ModelConfig& config, ConfigReport& report);
void write_window_key(const ModelConfig& config, Json& json);

// Qwen's: "use_sliding_window", "sliding_window" and which layers have it: "layer_types", a word
// for each, or where that is not given by "max_window_layers" m.
enum class WindowLayers {
  kFromMost,   // layers m and above (Qwen2, Qwen3)
  kEvenBelow,  // layers of even number below m (Qwen2-MoE)
  kAll,        // all; neither layer_types nor m choose (Qwen3-MoE)
};
void add_qwen_window_keys(Schema& schema, WindowLayers layers);
void read_qwen_window_keys(const ConfigValues& values, WindowLayers layers, ModelConfig& config,
                           ConfigReport& report);
// Nothing where no layer has a window.
void write_qwen_window_keys(const ModelConfig& config, WindowLayers layers, Json& json);

// Gemma's: "sliding_window", and the layers that see all: every "sliding_window_pattern"-th, or by
// "layer_types".
void add_pattern_window_keys(Schema& schema);
void read_pattern_window_keys(const ConfigValues& values, ModelConfig& config,
                              ConfigReport& report);
void write_pattern_window_keys(const ModelConfig& config, Json& json);

}  // namespace trireme
