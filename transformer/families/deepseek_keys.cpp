#include "transformer/families/deepseek_keys.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "engine/core/error.h"
#include "transformer/families/common_keys.h"
#include "transformer/families/expert_keys.h"
#include "transformer/families/rope_keys.h"

namespace trireme {
namespace {

ExpertKeys expert_keys(const SigmoidExperts& preset) {
  return {.experts = "n_routed_experts",
          .experts_default = preset.experts,
          .per_token_default = "8",
          .balance = "aux_loss_alpha",
          .balance_default = "0",
          .mixed = true,
          .width_default = preset.width,
          .normalize_default = true};
}

}  // namespace

void add_deepseek_expert_keys(Schema& schema, const DeepseekDefaults& preset) {
  schema
      .integer("moe_layer_freq", "1",
               "interval of layers with experts: those whose number it divides")
      .at_least(1);
  schema.integer("first_k_dense_replace", preset.first_dense, "first layers without experts")
      .at_least(0);
  schema
      .integer("n_shared_experts", preset.shared_experts,
               "shared experts of every token, computed as one MLP of that multiple of their width")
      .or_null()
      .at_least(0)
      .at_most(kMaxExperts);
  schema.integer("n_group", preset.groups, "groups of experts; divides n_routed_experts")
      .or_null()
      .at_least(1)
      .at_most(64);
  schema.integer("topk_group", preset.kept_groups, "groups that a token's experts are chosen from")
      .or_null()
      .at_least(1)
      .at_most(64);
  schema.number("routed_scaling_factor", preset.weight_scale, "factor of the experts' weights")
      .above(0);
  schema.boolean("seq_aux", true, "the balancing loss compares experts within each sequence");
}

void read_deepseek_expert_keys(const ConfigValues& values, bool grouped, MoeConfig& moe) {
  const auto integer = [&](const char* key, int64_t absent) {
    const Json value = values.raw(key);
    return value.is_null() ? absent : values.integer(key);
  };
  moe.sparse_step = values.integer("moe_layer_freq");
  moe.first_sparse = values.integer("first_k_dense_replace");
  moe.shared_intermediate_size = integer("n_shared_experts", 0) * moe.intermediate_size;
  moe.weight_scale = values.number("routed_scaling_factor");
  if (grouped) {
    moe.groups = integer("n_group", 1);
    moe.kept_groups = integer("topk_group", 1);
  }
  moe.balance_scope = values.flag("seq_aux") ? BalanceScope::kSequence : BalanceScope::kMicroBatch;
}

void write_deepseek_expert_keys(const MoeConfig& moe, Json& json) {
  json["moe_layer_freq"] = moe.sparse_step;
  json["first_k_dense_replace"] = moe.first_sparse;
  json["n_shared_experts"] = moe.shared_intermediate_size / moe.intermediate_size;
  json["n_group"] = moe.groups;
  json["topk_group"] = moe.kept_groups;
  json["routed_scaling_factor"] = moe.weight_scale;
  json["seq_aux"] = moe.balance_scope == BalanceScope::kSequence;
}

void add_latent_keys(Schema& schema) {
  add_silu_gate(schema);
  const auto width = [&](const char* key, const char* preset, const char* help) -> Key& {
    return schema.integer(key, preset, help).at_least(1).at_most(kMaxWidth);
  };
  width("q_lora_rank", "1536", "width of the queries' latent; null: queries have none").or_null();
  width("kv_lora_rank", "512", "width of the latent of keys and values");
  width("qk_nope_head_dim", "128", "elements of a query or key without rotary embedding");
  width("qk_rope_head_dim", "64", "elements with rotary embedding, after those; even");
  width("v_head_dim", "128", "width of a value; at most qk_nope_head_dim + qk_rope_head_dim");
  schema.ignored("head_dim");     // transformers writes qk_rope_head_dim as head_dim
  schema.ignored("qk_head_dim");  // and the sum of both parts as qk_head_dim
  add_rope_keys(schema, {});
}

void read_latent_keys(const ConfigValues& values, ModelConfig& config, ConfigReport& report) {
  LatentConfig& latent = config.latent;
  latent.q_rank = values.raw("q_lora_rank").is_null() ? 0 : values.integer("q_lora_rank");
  latent.kv_rank = values.integer("kv_lora_rank");
  latent.nope_dim = values.integer("qk_nope_head_dim");
  latent.rope_dim = values.integer("qk_rope_head_dim");
  latent.value_dim = values.integer("v_head_dim");
  config.head_dim = latent.nope_dim + latent.rope_dim;
  if (latent.rope_dim % 2 != 0)
    report.error(values.spelled("qk_rope_head_dim"),
                 concat("must be even: the rotary embedding rotates pairs; got ", latent.rope_dim));
  if (latent.value_dim > config.head_dim)
    report.error(values.spelled("v_head_dim"),
                 concat(latent.value_dim, " is more than the width of a key, ", config.head_dim,
                        " (qk_nope_head_dim + qk_rope_head_dim); such models are not supported"));
  if (config.num_kv_heads != config.num_heads)
    report.error(values.spelled("num_key_value_heads"),
                 concat("must be num_attention_heads ", config.num_heads, ", got ",
                        config.num_kv_heads, ": every head has its own keys and values"));
  read_rope_keys(values, config, report);
  const RopeScaling& rope = config.rope_scaling;
  if (rope.mscale_all_dim == 0) return;
  const double m = yarn_scale(rope.factor, rope.mscale_all_dim);
  config.attention_scale = m * m / std::sqrt(static_cast<double>(config.head_dim));
}

void write_latent_keys(const ModelConfig& config, Json& json) {
  const LatentConfig& latent = config.latent;
  json["q_lora_rank"] = latent.q_rank > 0 ? Json(latent.q_rank) : Json();
  json["kv_lora_rank"] = latent.kv_rank;
  json["qk_nope_head_dim"] = latent.nope_dim;
  json["qk_rope_head_dim"] = latent.rope_dim;
  json["qk_head_dim"] = latent.nope_dim + latent.rope_dim;
  json["head_dim"] = latent.rope_dim;
  json["v_head_dim"] = latent.value_dim;
}

void add_deepseek_v3_attention_keys(Schema& schema) {
  add_decoder_keys(schema, {.positions = "4096", .bos = "0", .eos = "1"});
  add_attention_bias(schema);
  add_latent_keys(schema);
}

void add_sigmoid_expert_keys(Schema& schema, const SigmoidExperts& preset) {
  schema
      .integer("num_nextn_predict_layers", "0",
               "multi-token prediction layers after the last layer: kept by copies, not run")
      .alias({"num_mtp_layers"})
      .at_least(0)
      .at_most(kMaxLayers);
  add_expert_keys(schema, expert_keys(preset));
  add_deepseek_expert_keys(schema, {.first_dense = preset.first_dense,
                                    .shared_experts = "1",
                                    .groups = preset.groups,
                                    .kept_groups = preset.kept_groups,
                                    .weight_scale = preset.weight_scale});
  schema.choice("scoring_func", "sigmoid", {"sigmoid"}, "scores from router logits");
  schema.choice("topk_method", "noaux_tc", {"noaux_tc"},
                "how experts are chosen: from the best groups, with a bias that balances them");
  add_routing_keys(schema);
}

void read_sigmoid_expert_keys(const ConfigValues& values, const SigmoidExperts& preset,
                              ModelConfig& config, ConfigReport& report) {
  const ExpertKeys keys = expert_keys(preset);
  config.moe = read_expert_keys(values, keys);
  config.moe.sigmoid_scores = config.moe.selection_bias = true;
  read_deepseek_expert_keys(values, true, config.moe);
  read_routing_keys(values, keys, config.moe, report);
  config.extra_layers = values.integer("num_nextn_predict_layers");
  note_extra_layers(values, "num_nextn_predict_layers", config, report);
}

void write_sigmoid_expert_keys(const ModelConfig& config, const SigmoidExperts& preset,
                               Json& json) {
  json["num_nextn_predict_layers"] = config.extra_layers;
  write_expert_keys(config.moe, expert_keys(preset), json);
  write_deepseek_expert_keys(config.moe, json);
  json["scoring_func"] = "sigmoid";
  json["topk_method"] = "noaux_tc";
  write_routing_keys(config.moe, json);
}

void add_deepseek_v3_layer_keys(Schema& schema) { add_sigmoid_expert_keys(schema, {}); }

void read_deepseek_v3_keys(const ConfigValues& values, ModelConfig& config, ConfigReport& report) {
  read_decoder_keys(values, config, report);
  read_attention_bias(values, config);
  read_latent_keys(values, config, report);
  read_sigmoid_expert_keys(values, {}, config, report);
}

void write_deepseek_v3_attention_keys(const ModelConfig& config, Json& json) {
  write_llama_keys(config, json);
  json["attention_bias"] = config.attention_bias;
  write_latent_keys(config, json);
}

void write_deepseek_v3_layer_keys(const ModelConfig& config, Json& json) {
  write_sigmoid_expert_keys(config, {}, json);
}

}  // namespace trireme
