// Qwen3-MoE (Yang et al. 2025): Qwen3's attention; fine experts in the place of the MLP, none shared.
#include <nlohmann/json.hpp>

#include "transformer/families/common_keys.h"
#include "transformer/families/expert_keys.h"
#include "transformer/families/table.h"
#include "transformer/families/window_keys.h"

namespace trireme {
namespace {

constexpr ExpertKeys kExperts{.experts = "num_experts",
                              .experts_default = "128",
                              .per_token_default = "8",
                              .balance = "router_aux_loss_coef",
                              .mixed = true,
                              .width_default = "768"};
constexpr WindowLayers kWindows = WindowLayers::kAll;

void add_keys(Schema& schema) {
  add_llama_keys(schema, {.positions = "32768", .bos = "null", .eos = "null", .kv_heads = "4"});
  add_attention_bias(schema);
  add_qwen_window_keys(schema, kWindows);
  add_expert_keys(schema, kExperts);
  add_qwen_layer_keys(schema);
  add_routing_keys(schema);
}

void read(const ConfigValues& values, ModelConfig& config, ConfigReport& report) {
  read_llama_keys(values, config, report);
  read_attention_bias(values, config);
  read_qwen_window_keys(values, kWindows, config, report);
  config.moe = read_expert_keys(values, kExperts);
  read_qwen_layer_keys(values, config.moe, report);
  read_routing_keys(values, kExperts, config.moe, report);
}

void write(const ModelConfig& config, Json& json) {
  write_llama_keys(config, json);
  json["attention_bias"] = config.attention_bias;
  write_qwen_window_keys(config, kWindows, json);
  write_expert_keys(config.moe, kExperts, json);
  write_qwen_layer_keys(config.moe, json);
  write_routing_keys(config.moe, json);
}

}  // namespace

constinit const Family kQwen3MoeFamily = {
    .id = ModelFamily::kQwen3Moe,
    .model_type = "qwen3_moe",
    .architecture = "Qwen3MoeForCausalLM",
    .title = "Qwen3-MoE style model: experts, normalised q and k",
    .positions_key = "max_position_embeddings",
    .names = {},
    .qk_norm = true,
    .add_keys = add_keys,
    .read = read,
    .write = write};

}  // namespace trireme
