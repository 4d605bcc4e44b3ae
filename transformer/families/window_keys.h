// Sliding-window keys of config.json. A window of 0 in a layer that has one is an error: no token
// would be visible there, and transformers fails with it.
#pragma once

#include "engine/config/reader.h"
#include "engine/config/schema.h"
#include "transformer/config/model_config.h"

namespace trireme {

// Mistral's key: "sliding_window" for all layers, null for none.
void add_window_key(Schema& schema, const char* preset);
void read_window_key(const ConfigValues& values, ModelConfig& config, ConfigReport& report);
void write_window_key(const ModelConfig& config, Json& json);

// Qwen's keys: "use_sliding_window", "sliding_window", and the selection of layers: "layer_types",
// one string per layer, or without it "max_window_layers" m.
enum class WindowLayers {
  kFromMax,    // layers m and above (Qwen2, Qwen3)
  kEvenBelow,  // even-numbered layers below m (Qwen2-MoE)
  kAll,        // all layers; layer_types and m have no effect (Qwen3-MoE)
  kUnrotated,  // layers without rotary positions; m has no effect (SmolLM3)
};
void add_qwen_window_keys(Schema& schema, WindowLayers layers);
// kUnrotated requires config.rope_layers to be read before.
void read_qwen_window_keys(const ConfigValues& values, WindowLayers layers, ModelConfig& config,
                           ConfigReport& report);
// Writes nothing if no layer has a window.
void write_qwen_window_keys(const ModelConfig& config, WindowLayers layers, Json& json);

// Gemma's keys: "sliding_window", and the layers with full attention: every
// "sliding_window_pattern"-th, or by "layer_types".
void add_pattern_window_keys(Schema& schema);
void read_pattern_window_keys(const ConfigValues& values, ModelConfig& config,
                              ConfigReport& report);
void write_pattern_window_keys(const ModelConfig& config, Json& json);

// Keys of OLMo 3, gpt-oss, Gemma 2 and EXAONE 4: "sliding_window", by default `preset`, in the
// layers that are "sliding_attention" in "layer_types", by default in all but every interval-th
// (interval 0: in none). An error if some layers have a window and "sliding_window" is null.
void add_listed_window_keys(Schema& schema, const char* preset = "4096");
void read_listed_window_keys(const ConfigValues& values, int64_t interval, ModelConfig& config,
                             ConfigReport& report);
// Without windows, omits "sliding_window" instead of writing null: transformers builds that mask in
// any case, then from its default.
void write_listed_window_keys(const ModelConfig& config, Json& json);

}  // namespace trireme
