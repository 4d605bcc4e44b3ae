// DeepSeek-MoE's block (Dai et al. 2024) with the routing of its later versions (DeepSeek-V2, 2024:
// groups of experts; V3, 2024: sigmoid scores, a selection bias), but with grouped-query attention.
#include <nlohmann/json.hpp>

#include "transformer/families/common_keys.h"
#include "transformer/families/deepseek_keys.h"
#include "transformer/families/expert_keys.h"
#include "transformer/families/table.h"

namespace trireme {
namespace {

constexpr ExpertKeys kDeepseekExperts{.experts = "n_routed_experts",
                                      .experts_default = "60",
                                      .per_token_default = "4",
                                      .balance = "aux_loss_alpha",
                                      .mixed = true};

void add_router_keys(Schema& schema) {
  schema.choice("scoring_func", "softmax", {"softmax", "sigmoid"}, "scores from router logits");
  schema.choice("topk_method", "greedy", {"greedy", "group_limited_greedy", "noaux_tc"},
                "how experts are chosen; noaux_tc: with a bias that balances them without a loss");
}

void add_deepseek_keys(Schema& schema) {
  add_llama_keys(schema, {.bos = "100000", .eos = "100001"});
  add_attention_bias(schema);
  add_expert_keys(schema, kDeepseekExperts);
  add_deepseek_expert_keys(schema, {.first_dense = "0",
                                    .shared_experts = "null",
                                    .groups = "1",
                                    .kept_groups = "1",
                                    .weight_scale = "1"});
  add_router_keys(schema);
  add_routing_keys(schema);
}

void read_deepseek(const ConfigValues& values, ModelConfig& config, ConfigReport& report) {
  read_llama_keys(values, config, report);
  read_attention_bias(values, config);
  config.moe = read_expert_keys(values, kDeepseekExperts);
  const std::string method = values.word("topk_method");
  config.moe.sigmoid_scores = values.word("scoring_func") == "sigmoid";
  config.moe.selection_bias = method == "noaux_tc";
  read_deepseek_expert_keys(values, method != "greedy", config.moe);
  read_routing_keys(values, kDeepseekExperts, config.moe, report);
  // DeepSeek-MoE's own code normalizes only where a token has several experts.
  if (config.moe.experts_per_token == 1) config.moe.normalize_weights = false;
}

void write_deepseek(const ModelConfig& config, Json& json) {
  const MoeConfig& moe = config.moe;
  write_llama_keys(config, json);
  json["attention_bias"] = config.attention_bias;
  write_expert_keys(moe, kDeepseekExperts, json);
  write_deepseek_expert_keys(moe, json);
  json["scoring_func"] = moe.sigmoid_scores ? "sigmoid" : "softmax";
  json["topk_method"] = moe.selection_bias ? "noaux_tc"
                        : moe.groups > 1   ? "group_limited_greedy"
                                           : "greedy";
  write_routing_keys(moe, json);
}

}  // namespace

constinit const Family kDeepseekFamily = {
    .id = ModelFamily::kDeepseek,
    .model_type = "deepseek",
    .architecture = "DeepseekForCausalLM",
    .title = "DeepSeek-MoE style model: fine-grained experts and shared experts",
    .models = "DeepSeek-MoE's block with later routing, grouped-query heads",
    .special = "shared experts, groups, sigmoid scores, selection bias",
    .refused = "latent attention",
    .positions_key = "max_position_embeddings",
    .names = {},
    .add_keys = add_deepseek_keys,
    .read = read_deepseek,
    .write = write_deepseek};

}  // namespace trireme
