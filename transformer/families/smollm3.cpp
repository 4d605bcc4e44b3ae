// SmolLM3 (HuggingFace 2025): Llama's block with a tied head, layers without rotary positions
// (Kazemnejad et al. 2023, arXiv 2305.19466) and, on request, a sliding window in those layers.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/core/error.h"
#include "transformer/families/common_keys.h"
#include "transformer/families/table.h"
#include "transformer/families/window_keys.h"

namespace trireme {
namespace {

constexpr WindowLayers kSmolLm3Windows = WindowLayers::kUnrotated;

void add_smollm3_keys(Schema& schema) {
  add_llama_keys(schema, {.positions = "32768",
                          .rope_theta = "2000000",
                          .bos = "128000",
                          .eos = "128001",
                          .kv_heads = "4",
                          .vocab = "128256",
                          .heads = "16",
                          .tied = true});
  add_attention_bias(schema);
  add_mlp_bias(schema);
  schema
      .any("no_rope_layers", "null", "list of 0 and 1",
           "of each layer 1: rotary positions, 0: none; null and []: by no_rope_layer_interval")
      .or_null();
  schema
      .integer("no_rope_layer_interval", "4",
               "interval of layers without rotary positions, where no_rope_layers is not given")
      .at_least(1);
  add_qwen_window_keys(schema, kSmolLm3Windows);
}

// Element of the list: 1, 0, true or false; -1: none of these.
int rotates(const Json& element) {
  if (element.is_boolean()) return element.get<bool>() ? 1 : 0;
  if (!element.is_number_integer()) return -1;
  return element == 0 ? 0 : element == 1 ? 1 : -1;
}

// One element per layer; empty: all layers are rotated. Longer lists are read up to the last layer,
// as transformers does.
std::vector<uint8_t> read_rope_layers(const ConfigValues& values, int64_t layers,
                                      ConfigReport& report) {
  const char* const key = "no_rope_layers";
  const Json list = values.given(key) ? values.raw(key) : Json::array();
  std::vector<uint8_t> out;
  if (list.is_array() && list.empty()) {
    const int64_t interval = std::max<int64_t>(1, values.integer("no_rope_layer_interval"));
    for (int64_t l = 0; l < layers; ++l) out.push_back((l + 1) % interval != 0 ? 1 : 0);
  } else if (list.is_array() && std::ssize(list) >= layers &&
             std::ranges::all_of(list, [](const Json& one) { return rotates(one) >= 0; })) {
    for (int64_t l = 0; l < layers; ++l)
      out.push_back(static_cast<uint8_t>(rotates(list[static_cast<size_t>(l)])));
  } else {
    report.error(values.spelled(key),
                 concat("must be a list of at least ", layers,
                        " numbers 0 and 1, one for each layer, or null, got ", shown(list)));
  }
  if (std::ranges::find(out, 0) == out.end()) out.clear();
  return out;
}

void read_smollm3(const ConfigValues& values, ModelConfig& config, ConfigReport& report) {
  read_llama_keys(values, config, report);
  read_attention_bias(values, config);
  config.mlp_bias = values.flag("mlp_bias");
  config.rope_layers = read_rope_layers(values, config.num_layers, report);
  read_qwen_window_keys(values, kSmolLm3Windows, config, report);
}

void write_smollm3(const ModelConfig& config, Json& json) {
  write_llama_keys(config, json);
  json["attention_bias"] = config.attention_bias;
  json["mlp_bias"] = config.mlp_bias;
  Json list = Json::array();
  for (int64_t l = 0; l < config.num_layers; ++l) list.push_back(config.rotates(l) ? 1 : 0);
  json["no_rope_layers"] = std::move(list);
  write_qwen_window_keys(config, kSmolLm3Windows, json);
}

}  // namespace

constinit const Family kSmolLm3Family = {
    .id = ModelFamily::kSmolLm3,
    .model_type = "smollm3",
    .architecture = "SmolLM3ForCausalLM",
    .title = "SmolLM3 style model: layers with and without rotary positions",
    .models = "SmolLM3",
    .special =
        "layers without rotary positions, by `no_rope_layers` or every "
        "`no_rope_layer_interval`-th; tied head; on request windows in those layers, or by "
        "`layer_types`",
    .positions_key = "max_position_embeddings",
    .names = {},
    .layer_types = true,
    .add_keys = add_smollm3_keys,
    .read = read_smollm3,
    .write = write_smollm3};

}  // namespace trireme
