// Qwen2-MoE (Yang et al. 2024): fine-grained experts plus a gated shared MLP; biases of q, k and v.
#include <nlohmann/json.hpp>

#include "transformer/families/common_keys.h"
#include "transformer/families/expert_keys.h"
#include "transformer/families/table.h"
#include "transformer/families/window_keys.h"

namespace trireme {
namespace {

constexpr ExpertKeys kQwen2MoeExperts{.experts = "num_experts",
                                      .experts_default = "60",
                                      .per_token_default = "4",
                                      .balance = "router_aux_loss_coef",
                                      .mixed = true};
constexpr WindowLayers kQwen2MoeWindows = WindowLayers::kEvenBelow;

void add_qwen2_moe_keys(Schema& schema) {
  add_llama_keys(schema, {.positions = "32768", .bos = "null", .eos = "null", .kv_heads = "16"});
  schema.boolean("qkv_bias", true, "biases of the q, k and v projections");
  add_qwen_window_keys(schema, kQwen2MoeWindows);
  add_expert_keys(schema, kQwen2MoeExperts);
  add_qwen_layer_keys(schema);
  schema
      .integer("shared_expert_intermediate_size", "5632",
               "width of the shared expert, a gated MLP for every token")
      .at_least(0)
      .at_most(4 * kMaxWidth);
  add_routing_keys(schema);
}

void read_qwen2_moe(const ConfigValues& values, ModelConfig& config, ConfigReport& report) {
  read_llama_keys(values, config, report);
  config.attention_bias = values.flag("qkv_bias");
  read_qwen_window_keys(values, kQwen2MoeWindows, config, report);
  config.moe = read_expert_keys(values, kQwen2MoeExperts);
  config.moe.shared_intermediate_size = values.integer("shared_expert_intermediate_size");
  config.moe.shared_gate = config.moe.shared_intermediate_size > 0;
  read_qwen_layer_keys(values, config.moe, report);
  read_routing_keys(values, kQwen2MoeExperts, config.moe, report);
}

void write_qwen2_moe(const ModelConfig& config, Json& json) {
  write_llama_keys(config, json);
  json["qkv_bias"] = config.attention_bias;
  write_qwen_window_keys(config, kQwen2MoeWindows, json);
  write_expert_keys(config.moe, kQwen2MoeExperts, json);
  write_qwen_layer_keys(config.moe, json);
  json["shared_expert_intermediate_size"] = config.moe.shared_intermediate_size;
  write_routing_keys(config.moe, json);
}

}  // namespace

constinit const Family kQwen2MoeFamily = {
    .id = ModelFamily::kQwen2Moe,
    .model_type = "qwen2_moe",
    .architecture = "Qwen2MoeForCausalLM",
    .title = "Qwen2-MoE style model: experts and a shared MLP",
    .models = "Qwen1.5-MoE, Qwen2-57B-A14B",
    .special = "experts and a shared MLP with a gate; windows in even layers",
    .positions_key = "max_position_embeddings",
    .names = {.shared_expert = "shared_expert"},
    .layer_types = true,
    .add_keys = add_qwen2_moe_keys,
    .read = read_qwen2_moe,
    .write = write_qwen2_moe};

}  // namespace trireme
