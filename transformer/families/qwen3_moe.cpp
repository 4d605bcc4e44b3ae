// Qwen3-MoE (Yang et al. 2025): Qwen3's attention; fine-grained experts instead of the MLP, no
// shared expert.
#include <nlohmann/json.hpp>

#include "transformer/families/common_keys.h"
#include "transformer/families/expert_keys.h"
#include "transformer/families/table.h"
#include "transformer/families/window_keys.h"

namespace trireme {
namespace {

constexpr ExpertKeys kQwen3MoeExperts{.experts = "num_experts",
                                      .experts_default = "128",
                                      .per_token_default = "8",
                                      .balance = "router_aux_loss_coef",
                                      .mixed = true,
                                      .width_default = "768"};
constexpr WindowLayers kQwen3MoeWindows = WindowLayers::kAll;

void add_qwen3_moe_keys(Schema& schema) {
  add_llama_keys(schema, {.positions = "32768", .bos = "null", .eos = "null", .kv_heads = "4"});
  add_attention_bias(schema);
  add_qwen_window_keys(schema, kQwen3MoeWindows);
  add_expert_keys(schema, kQwen3MoeExperts);
  add_qwen_layer_keys(schema);
  add_routing_keys(schema);
}

void read_qwen3_moe(const ConfigValues& values, ModelConfig& config, ConfigReport& report) {
  read_llama_keys(values, config, report);
  read_attention_bias(values, config);
  read_qwen_window_keys(values, kQwen3MoeWindows, config, report);
  config.moe = read_expert_keys(values, kQwen3MoeExperts);
  read_qwen_layer_keys(values, config.moe, report);
  read_routing_keys(values, kQwen3MoeExperts, config.moe, report);
}

void write_qwen3_moe(const ModelConfig& config, Json& json) {
  write_llama_keys(config, json);
  json["attention_bias"] = config.attention_bias;
  write_qwen_window_keys(config, kQwen3MoeWindows, json);
  write_expert_keys(config.moe, kQwen3MoeExperts, json);
  write_qwen_layer_keys(config.moe, json);
  write_routing_keys(config.moe, json);
}

}  // namespace

constinit const Family kQwen3MoeFamily = {
    .id = ModelFamily::kQwen3Moe,
    .model_type = "qwen3_moe",
    .architecture = "Qwen3MoeForCausalLM",
    .title = "Qwen3-MoE style model: experts, normalized q and k",
    .models = "Qwen3-30B-A3B, Qwen3-235B-A22B",
    .special = "qwen3's attention, experts, none shared",
    .positions_key = "max_position_embeddings",
    .names = {},
    .qk_norm = true,
    .peft_adapts_fused_experts = true,
    .add_keys = add_qwen3_moe_keys,
    .read = read_qwen3_moe,
    .write = write_qwen3_moe};

}  // namespace trireme
