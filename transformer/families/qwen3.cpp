// Qwen3 (Yang et al. 2025): Llama's block with norms of the heads of q and k instead of Qwen2's
// biases.
#include <nlohmann/json.hpp>

#include "transformer/families/common_keys.h"
#include "transformer/families/table.h"
#include "transformer/families/window_keys.h"

namespace trireme {
namespace {

constexpr WindowLayers kQwen3Windows = WindowLayers::kFromMax;

void add_qwen3_keys(Schema& schema) {
  add_llama_keys(
      schema,
      {.positions = "32768", .bos = "null", .eos = "null", .kv_heads = "32", .head_dim = "128"});
  add_attention_bias(schema);
  add_qwen_window_keys(schema, kQwen3Windows);
}

void read_qwen3(const ConfigValues& values, ModelConfig& config, ConfigReport& report) {
  read_llama_keys(values, config, report);
  read_attention_bias(values, config);
  read_qwen_window_keys(values, kQwen3Windows, config, report);
}

void write_qwen3(const ModelConfig& config, Json& json) {
  write_llama_keys(config, json);
  json["attention_bias"] = config.attention_bias;
  write_qwen_window_keys(config, kQwen3Windows, json);
}

}  // namespace

constinit const Family kQwen3Family = {.id = ModelFamily::kQwen3,
                                       .model_type = "qwen3",
                                       .architecture = "Qwen3ForCausalLM",
                                       .title = "Qwen3 style model",
                                       .models = "Qwen3, dense",
                                       .special = "normalized heads of q and k, no biases",
                                       .positions_key = "max_position_embeddings",
                                       .names = {},
                                       .qk_norm = true,
                                       .layer_types = true,
                                       .add_keys = add_qwen3_keys,
                                       .read = read_qwen3,
                                       .write = write_qwen3};

}  // namespace trireme
