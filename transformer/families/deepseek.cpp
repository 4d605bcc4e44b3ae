// DeepSeek-MoE's block (Dai et al. 2024) with the routing of its later versions (DeepSeek-V2, 2024:
// groups of experts; V3, 2024: sigmoid scores, a selection bias), but with grouped-query attention.
#include <nlohmann/json.hpp>

#include "transformer/families/common_keys.h"
#include "transformer/families/expert_keys.h"
#include "transformer/families/table.h"

namespace trireme {
namespace {

constexpr ExpertKeys kExperts{.experts = "n_routed_experts",
                              .experts_default = "60",
                              .per_token_default = "4",
                              .balance = "aux_loss_alpha",
                              .mixed = true};

void add_layer_keys(Schema& schema) {
  schema.integer("moe_layer_freq", "1", "layers whose number it divides have experts").at_least(1);
  schema.integer("first_k_dense_replace", "0", "first layers without experts").at_least(0);
  schema
      .integer("n_shared_experts", "null",
               "experts that every token passes, as one MLP of as many times their width")
      .or_null()
      .at_least(0)
      .at_most(kMaxExperts);
}

void add_router_keys(Schema& schema) {
  schema.choice("scoring_func", "softmax", {"softmax", "sigmoid"}, "scores from router logits");
  schema.choice("topk_method", "greedy", {"greedy", "group_limited_greedy", "noaux_tc"},
                "how experts are chosen; noaux_tc: with a bias that balances them without a loss");
  schema.integer("n_group", "1", "neighbourhoods of experts; divides n_routed_experts")
      .or_null()
      .at_least(1)
      .at_most(64);
  schema.integer("topk_group", "1", "neighbourhoods a token may choose from")
      .or_null()
      .at_least(1)
      .at_most(64);
  schema.number("routed_scaling_factor", "1", "factor of the experts' weights").above(0);
  schema.boolean("seq_aux", true, "the balancing loss compares experts within each sequence");
}

void add_keys(Schema& schema) {
  add_llama_keys(schema, {"2048", "10000", "1e-06", "100000", "100001"});
  add_attention_bias(schema);
  schema.ignored("pretraining_tp");
  schema.unavailable("sliding_window", {}, "sliding-window attention");
  add_expert_keys(schema, kExperts);
  add_layer_keys(schema);
  add_router_keys(schema);
  for (const char* key :
       {"kv_lora_rank", "q_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim"})
    schema.unavailable(key, {}, "multi-head latent attention");
  add_routing_keys(schema);
}

void read_layers(const ConfigValues& values, MoeConfig& moe) {
  moe.sparse_step = values.integer("moe_layer_freq");
  moe.first_sparse = values.integer("first_k_dense_replace");
  const int64_t shared = values.given("n_shared_experts") ? values.integer("n_shared_experts") : 0;
  moe.shared_intermediate_size = shared * moe.intermediate_size;
}

void read_router(const ConfigValues& values, MoeConfig& moe) {
  const std::string method = values.word("topk_method");
  moe.sigmoid_scores = values.word("scoring_func") == "sigmoid";
  moe.weight_scale = values.number("routed_scaling_factor");
  moe.selection_bias = method == "noaux_tc";
  if (method != "greedy") {
    moe.groups = values.given("n_group") ? values.integer("n_group") : 1;
    moe.kept_groups = values.given("topk_group") ? values.integer("topk_group") : 1;
  }
  moe.balance_scope = values.flag("seq_aux") ? BalanceScope::kSequence : BalanceScope::kMicroBatch;
}

void read(const ConfigValues& values, ModelConfig& config, ConfigReport& report) {
  read_llama_keys(values, config, report);
  read_attention_bias(values, config);
  config.moe = read_expert_keys(values, kExperts);
  read_router(values, config.moe);
  read_layers(values, config.moe);
  read_routing_keys(values, kExperts, config.moe, report);
}

void write(const ModelConfig& config, Json& json) {
  const MoeConfig& moe = config.moe;
  write_llama_keys(config, json);
  json["attention_bias"] = config.attention_bias;
  write_expert_keys(moe, kExperts, json);
  json["moe_layer_freq"] = moe.sparse_step;
  json["first_k_dense_replace"] = moe.first_sparse;
  json["n_shared_experts"] = moe.shared_intermediate_size / moe.intermediate_size;
  json["scoring_func"] = moe.sigmoid_scores ? "sigmoid" : "softmax";
  json["topk_method"] = moe.selection_bias ? "noaux_tc"
                        : moe.groups > 1   ? "group_limited_greedy"
                                           : "greedy";
  json["n_group"] = moe.groups;
  json["topk_group"] = moe.kept_groups;
  json["routed_scaling_factor"] = moe.weight_scale;
  json["seq_aux"] = moe.balance_scope == BalanceScope::kSequence;
  write_routing_keys(moe, json);
}

}  // namespace

constinit const Family kDeepseekFamily = {
    .id = ModelFamily::kDeepseek,
    .model_type = "deepseek",
    .architecture = "DeepseekForCausalLM",
    .title = "DeepSeek-MoE style model: fine experts beside shared ones",
    .positions_key = "max_position_embeddings",
    .names = {},
    .add_keys = add_keys,
    .read = read,
    .write = write};

}  // namespace trireme
