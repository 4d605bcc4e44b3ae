// Llama (Touvron et al. 2023): RMSNorm, rotary positions, grouped-query attention, a gated MLP.
#include <nlohmann/json.hpp>

#include "transformer/families/common_keys.h"
#include "transformer/families/table.h"

namespace trireme {
namespace {

void add_llama_keys(Schema& schema) {
  add_llama_keys(schema, {});
  add_attention_bias(schema);
  add_mlp_bias(schema);
}

void read_llama(const ConfigValues& values, ModelConfig& config, ConfigReport& report) {
  read_llama_keys(values, config, report);
  read_attention_bias(values, config);
  config.mlp_bias = values.flag("mlp_bias");
}

void write_llama(const ModelConfig& config, Json& json) {
  write_llama_keys(config, json);
  json["attention_bias"] = config.attention_bias;
  json["mlp_bias"] = config.mlp_bias;
}

}  // namespace

constinit const Family kLlamaFamily = {
    .id = ModelFamily::kLlama,
    .model_type = "llama",
    .architecture = "LlamaForCausalLM",
    .title = "Llama style model",
    .models =
        "Llama 1, 2, 3, 3.1, 3.2, 3.3, TinyLlama, Vicuna, Yi, SmolLM, DeepSeek-LLM, DeepSeek-Coder "
        "and others of that shape",
    .special = "RMSNorm, rotary positions, grouped-query heads, gated MLP; optional biases",
    .refused = "windows, other activations",
    .positions_key = "max_position_embeddings",
    .names = {},
    .add_keys = add_llama_keys,
    .read = read_llama,
    .write = write_llama};

}  // namespace trireme
