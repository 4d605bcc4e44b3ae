// EXAONE 4.0 (LG AI Research 2025, arXiv 2507.11407): norms of the outputs of attention and MLP in
// place of their inputs, norms of the heads of q and k, and in models with windows no rotary
// positions in the other layers.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/core/error.h"
#include "transformer/families/common_keys.h"
#include "transformer/families/table.h"
#include "transformer/families/window_keys.h"

namespace trireme {
namespace {

constexpr const char* kPattern = "sliding_window_pattern";

void add_exaone4_keys(Schema& schema) {
  add_llama_keys(
      schema,
      {.norm_eps = "1e-05", .bos = "0", .kv_heads = "32", .vocab = "102400", .heads = "32"});
  add_listed_window_keys(schema);
  schema
      .any(kPattern, "4", "integer, or letters L and G",
           "interval of layers with full attention; letters are read with layer_types only")
      .or_null();
}

// 0: no layer has a window, unless layer_types names it.
int64_t full_interval(const ConfigValues& values, ConfigReport& report) {
  const Json& pattern = values.raw(kPattern);
  if (values.given("layer_types") || values.raw("sliding_window").is_null() || pattern.is_null())
    return 0;
  if (pattern.is_number_integer() && pattern >= 1 && pattern <= kMaxLayers)
    return pattern.get<int64_t>();
  report.error(values.spelled(kPattern),
               concat("is ", shown(pattern), ", expected a number of layers, or layer_types"));
  return 0;
}

void read_exaone4(const ConfigValues& values, ModelConfig& config, ConfigReport& report) {
  read_llama_keys(values, config, report);
  read_listed_window_keys(values, full_interval(values, report), config, report);
  if (!values.raw("sliding_window").is_null())
    for (int64_t l = 0; l < config.num_layers; ++l)
      config.rope_layers.push_back(config.window(l) > 0 ? 1 : 0);
  if (std::ranges::find(config.rope_layers, 0) == config.rope_layers.end())
    config.rope_layers.clear();
  config.pre_norms = false;
  config.post_norms = true;
}

void write_exaone4(const ModelConfig& config, Json& json) {
  write_llama_keys(config, json);
  write_listed_window_keys(config, json);
  if (config.has_windows()) return;
  // A window that no layer has still means that no layer is rotated.
  json["sliding_window"] = config.rope_layers.empty() ? Json() : Json(4096);
}

}  // namespace

constinit const Family kExaone4Family = {
    .id = ModelFamily::kExaone4,
    .model_type = "exaone4",
    .architecture = "Exaone4ForCausalLM",
    .title = "EXAONE 4 style model: norms after attention and MLP, rotary positions by layer",
    .models = "EXAONE 4.0",
    .special =
        "norms of the outputs of attention and MLP, none of their inputs; normalized heads of q "
        "and k; in models with windows no rotary positions in the other layers",
    .positions_key = "max_position_embeddings",
    .names = {.attention_post_norm = "post_attention_layernorm",
              .mlp_post_norm = "post_feedforward_layernorm"},
    .qk_norm = true,
    .layer_types = true,
    .add_keys = add_exaone4_keys,
    .read = read_exaone4,
    .write = write_exaone4};

}  // namespace trireme
