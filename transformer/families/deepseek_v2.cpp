// DeepSeek-V2 (DeepSeek-AI 2024, arXiv 2405.04434): multi-head latent attention, and experts with
// softmax scores, chosen among all experts or among the best groups.
#include <nlohmann/json.hpp>

#include "engine/core/error.h"
#include "transformer/families/common_keys.h"
#include "transformer/families/deepseek_keys.h"
#include "transformer/families/expert_keys.h"
#include "transformer/families/table.h"

namespace trireme {
namespace {

constexpr ExpertKeys kDeepseekV2Experts{.experts = "n_routed_experts",
                                        .experts_default = "64",
                                        .per_token_default = "6",
                                        .balance = "aux_loss_alpha",
                                        .balance_default = "0",
                                        .mixed = true,
                                        .width_default = "1407"};

void add_deepseek_v2_keys(Schema& schema) {
  add_decoder_keys(schema, {});
  add_attention_bias(schema);
  add_latent_keys(schema);
  schema.refused("rope_interleave", {"true"}, "this family rotates pairs of neighbours");
  add_expert_keys(schema, kDeepseekV2Experts);
  add_deepseek_expert_keys(schema, {.first_dense = "0",
                                    .shared_experts = "2",
                                    .groups = "null",
                                    .kept_groups = "null",
                                    .weight_scale = "1"});
  schema.choice("scoring_func", "softmax", {"softmax"}, "scores from router logits");
  schema.choice("topk_method", "greedy", {"greedy", "group_limited_greedy"},
                "how experts are chosen: from all, or from the topk_group best of n_group groups");
  add_routing_keys(schema);
}

void read_deepseek_v2(const ConfigValues& values, ModelConfig& config, ConfigReport& report) {
  read_decoder_keys(values, config, report);
  read_attention_bias(values, config);
  read_latent_keys(values, config, report);
  config.rope_interleaved = true;
  config.moe = read_expert_keys(values, kDeepseekV2Experts);
  const bool grouped = values.word("topk_method") == "group_limited_greedy";
  read_deepseek_expert_keys(values, grouped, config.moe);
  read_routing_keys(values, kDeepseekV2Experts, config.moe, report);
  if (config.moe.normalize_weights)
    report.error(values.spelled("norm_topk_prob"),
                 "must be false: transformers' deepseek_v2 does not divide a token's weights by "
                 "their sum, so it would compute something else with this model; deepseek_v3 "
                 "does");
  for (const char* key : {"n_group", "topk_group"})
    if (grouped && values.raw(key).is_null())
      report.error(values.spelled(key), "is required with topk_method group_limited_greedy");
}

void write_deepseek_v2(const ModelConfig& config, Json& json) {
  write_llama_keys(config, json);
  json["attention_bias"] = config.attention_bias;
  write_latent_keys(config, json);
  write_expert_keys(config.moe, kDeepseekV2Experts, json);
  write_deepseek_expert_keys(config.moe, json);
  json["scoring_func"] = "softmax";
  json["topk_method"] = config.moe.groups > 1 ? "group_limited_greedy" : "greedy";
  write_routing_keys(config.moe, json);
}

}  // namespace

constinit const Family kDeepseekV2Family = {
    .id = ModelFamily::kDeepseekV2,
    .model_type = "deepseek_v2",
    .architecture = "DeepseekV2ForCausalLM",
    .title = "DeepSeek-V2 style model: latent attention, experts with softmax scores",
    .models = "DeepSeek-V2, V2-Lite, V2.5, Coder-V2",
    .special =
        "[latent attention](#latent-attention), with a latent of the queries or without; softmax "
        "scores, from all experts or from the best groups",
    .refused =
        "normalized weights of experts (transformers' code has none), values wider than keys",
    .positions_key = "max_position_embeddings",
    .names = {},
    .peft_adapts_fused_experts = true,
    .add_keys = add_deepseek_v2_keys,
    .read = read_deepseek_v2,
    .write = write_deepseek_v2};

}  // namespace trireme
