// SmolLM3 (HuggingFace 2025): Llama's block with a tied head, layers without rotary positions
// (Kazemnejad et al. 2023, arXiv 2305.19466) and, on request, a sliding window in those layers.
#include <nlohmann/json.hpp>

#include "transformer/families/common_keys.h"
#include "transformer/families/rope_keys.h"
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
  add_rope_layer_keys(schema);
  add_qwen_window_keys(schema, kSmolLm3Windows);
}

void read_smollm3(const ConfigValues& values, ModelConfig& config, ConfigReport& report) {
  read_llama_keys(values, config, report);
  read_attention_bias(values, config);
  config.mlp_bias = values.flag("mlp_bias");
  read_rope_layer_keys(values, config, report);
  read_qwen_window_keys(values, kSmolLm3Windows, config, report);
}

void write_smollm3(const ModelConfig& config, Json& json) {
  write_llama_keys(config, json);
  json["attention_bias"] = config.attention_bias;
  json["mlp_bias"] = config.mlp_bias;
  write_rope_layer_keys(config, json);
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
