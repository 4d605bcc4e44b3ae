#include "transformer/moe_config.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/core/error.h"
#include "transformer/model_config.h"

namespace trireme {
namespace {

constexpr double kMaxExperts = 1 << 16;
constexpr double kMaxWidth = 1 << 20;

const char* experts_key(ModelFamily family) {
  if (family == ModelFamily::kMixtral) return "num_local_experts";
  return family == ModelFamily::kQwen2Moe ? "num_experts" : "n_routed_experts";
}

const char* balance_key(ModelFamily family) {
  return family == ModelFamily::kDeepseek ? "aux_loss_alpha" : "router_aux_loss_coef";
}

void add_layers_keys(Schema& schema, ModelFamily family) {
  if (family == ModelFamily::kQwen2Moe) {
    schema.integer("decoder_sparse_step", "1", "every how many layers one has experts").at_least(1);
    schema.any("mlp_only_layers", "[]", "list of layer numbers", "layers without experts")
        .or_null();
    schema
        .integer("shared_expert_intermediate_size", "5632",
                 "width of the gated MLP that every token passes, beside the experts")
        .at_least(0)
        .at_most(4 * kMaxWidth);
  }
  if (family == ModelFamily::kDeepseek) {
    schema.integer("moe_layer_freq", "1", "layers whose number it divides have experts")
        .at_least(1);
    schema.integer("first_k_dense_replace", "0", "first layers without experts").at_least(0);
    schema
        .integer("n_shared_experts", "null",
                 "experts that every token passes, as one MLP of as many times their width")
        .or_null()
        .at_least(0)
        .at_most(kMaxExperts);
  }
}

void add_deepseek_router_keys(Schema& schema) {
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
  for (const char* key :
       {"kv_lora_rank", "q_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim"})
    schema.unavailable(key, {}, "multi-head latent attention");
}

// Keys of ours, the same in all families.
void add_training_keys(Schema& schema, ModelFamily family) {
  schema
      .choice("router_aux_loss_scope", "micro_batch", {"micro_batch", "sequence", "global"},
              "over which tokens the balancing loss compares experts; global: by their shares of "
              "the previous step's batch")
      .or_null();
  schema.number("router_z_loss_coef", "0", "weight of mean logsumexp(router logits)^2").at_least(0);
  schema.boolean("noisy_gating", false, "trained noise on the router logits (Shazeer et al. 2017)");
  schema.number("router_importance_loss_coef", "0", "weight of CV^2 of the experts' weight sums")
      .at_least(0);
  schema.number("router_load_loss_coef", "0", "weight of CV^2 of the experts' loads; noisy_gating")
      .at_least(0);
  schema
      .number("router_bias_update_speed", "0",
              "how far the selection bias of an expert moves each step towards an even load; 0: "
              "it stays")
      .at_least(0)
      .at_most(1);
  schema
      .number("expert_capacity_factor", "null",
              "tokens over this multiple of an even share of an expert are dropped, the last ones "
              "of the micro-batch first; null: none are")
      .or_null()
      .above(0);
  schema.ignored("output_router_logits");
  schema.ignored("ep_size");
  if (family == ModelFamily::kMixtral)
    schema.unavailable("router_jitter_noise", {"0", "0.0"}, "jitter of the router's input");
}

void read_layers(const ConfigValues& values, ModelFamily family, ConfigReport& report,
                 MoeConfig& moe) {
  if (family == ModelFamily::kQwen2Moe) {
    moe.sparse_step = values.integer("decoder_sparse_step");
    moe.sparse_phase = moe.sparse_step - 1;
    moe.shared_intermediate_size = values.integer("shared_expert_intermediate_size");
    moe.shared_gate = moe.shared_intermediate_size > 0;
    const Json layers = values.given("mlp_only_layers") ? values.raw("mlp_only_layers") : Json();
    if (!layers.is_null() && !layers.is_array()) {
      report.error(values.spelled("mlp_only_layers"), "must be a list, got " + shown(layers));
      return;
    }
    for (const Json& layer : layers)
      if (layer.is_number_integer() && layer >= 0)
        moe.dense_layers.push_back(layer.get<int64_t>());
      else
        report.error(values.spelled("mlp_only_layers"),
                     "must hold layer numbers, got " + shown(layer));
  }
  if (family == ModelFamily::kDeepseek) {
    moe.sparse_step = values.integer("moe_layer_freq");
    moe.first_sparse = values.integer("first_k_dense_replace");
    const int64_t shared =
        values.given("n_shared_experts") ? values.integer("n_shared_experts") : 0;
    moe.shared_intermediate_size = shared * moe.intermediate_size;
  }
}

void read_deepseek_router(const ConfigValues& values, MoeConfig& moe) {
  const std::string method = values.word("topk_method");
  moe.sigmoid_scores = values.word("scoring_func") == "sigmoid";
  moe.normalise_weights = values.flag("norm_topk_prob");
  moe.weight_scale = values.number("routed_scaling_factor");
  moe.selection_bias = method == "noaux_tc";
  if (method != "greedy") {
    moe.groups = values.given("n_group") ? values.integer("n_group") : 1;
    moe.kept_groups = values.given("topk_group") ? values.integer("topk_group") : 1;
  }
  moe.balance_scope = values.flag("seq_aux") ? BalanceScope::kSequence : BalanceScope::kMicroBatch;
}

void check_choice(const ConfigValues& values, ModelFamily family, ConfigReport& report,
                  const MoeConfig& moe) {
  if (moe.experts == 0) return;  // reported
  if (moe.groups > 0 && moe.experts % moe.groups != 0)
    report.error(values.spelled("n_group"),
                 concat(moe.groups, " does not divide ", experts_key(family), " ", moe.experts));
  else if (moe.kept_groups > moe.groups)
    report.error(values.spelled("topk_group"),
                 concat(moe.kept_groups, " is more than n_group ", moe.groups));
  else if (moe.experts_per_token > moe.experts / moe.groups * moe.kept_groups)
    report.error(values.spelled("num_experts_per_tok"),
                 concat(moe.experts_per_token, " is more than the ",
                        moe.experts / moe.groups * moe.kept_groups,
                        " experts that a token may choose from"));
  if (moe.load_coef > 0 && !moe.noisy)
    report.error(values.spelled("router_load_loss_coef"),
                 "needs noisy_gating: the load is a probability under its noise");
  if (moe.noisy && moe.sigmoid_scores)
    report.error(values.spelled("noisy_gating"),
                 "goes with scoring_func softmax; sigmoid scores have no noise");
}

}  // namespace

bool MoeConfig::sparse(int64_t layer) const {
  return experts > 0 && layer >= first_sparse && layer % sparse_step == sparse_phase &&
         std::ranges::find(dense_layers, layer) == dense_layers.end();
}

void add_moe_keys(Schema& schema, ModelFamily family) {
  const bool mixtral = family == ModelFamily::kMixtral;
  schema.integer(experts_key(family), mixtral ? "8" : "60", "experts of a layer")
      .at_least(1)
      .at_most(kMaxExperts);
  schema.integer("num_experts_per_tok", mixtral ? "2" : "4", "experts that a token goes to")
      .at_least(1)
      .at_most(kMaxExperts);
  schema.number(balance_key(family), "0.001", "weight of the loss that balances the experts")
      .at_least(0);
  if (!mixtral) {
    schema.integer("moe_intermediate_size", "1408", "width of an expert's gated MLP")
        .at_least(1)
        .at_most(4 * kMaxWidth);
    schema.boolean("norm_topk_prob", false, "the weights of a token's experts add up to 1");
  }
  add_layers_keys(schema, family);
  if (family == ModelFamily::kDeepseek) add_deepseek_router_keys(schema);
  add_training_keys(schema, family);
}

MoeConfig read_moe_config(const ConfigValues& values, ModelFamily family, ConfigReport& report) {
  MoeConfig moe;
  const bool mixtral = family == ModelFamily::kMixtral;
  moe.experts = values.integer(experts_key(family));
  moe.experts_per_token = values.integer("num_experts_per_tok");
  moe.intermediate_size = values.integer(mixtral ? "intermediate_size" : "moe_intermediate_size");
  moe.balance_coef = values.number(balance_key(family));
  if (family == ModelFamily::kQwen2Moe) moe.normalise_weights = values.flag("norm_topk_prob");
  if (family == ModelFamily::kDeepseek) read_deepseek_router(values, moe);
  read_layers(values, family, report, moe);
  if (values.given("router_aux_loss_scope")) {
    const std::string scope = values.word("router_aux_loss_scope");
    moe.balance_scope = scope == "global"     ? BalanceScope::kGlobal
                        : scope == "sequence" ? BalanceScope::kSequence
                                              : BalanceScope::kMicroBatch;
  }
  moe.z_coef = values.number("router_z_loss_coef");
  moe.noisy = values.flag("noisy_gating");
  moe.importance_coef = values.number("router_importance_loss_coef");
  moe.load_coef = values.number("router_load_loss_coef");
  moe.bias_update_speed = values.number("router_bias_update_speed");
  moe.selection_bias = moe.selection_bias || moe.bias_update_speed > 0;
  if (values.given("expert_capacity_factor"))
    moe.capacity_factor = values.number("expert_capacity_factor");
  check_choice(values, family, report, moe);
  return moe;
}

void write_moe_config(const MoeConfig& moe, ModelFamily family, Json& json) {
  json[experts_key(family)] = moe.experts;
  json["num_experts_per_tok"] = moe.experts_per_token;
  json[balance_key(family)] = moe.balance_coef;
  if (family != ModelFamily::kMixtral) {
    json["moe_intermediate_size"] = moe.intermediate_size;
    json["norm_topk_prob"] = moe.normalise_weights;
  }
  if (family == ModelFamily::kQwen2Moe) {
    json["decoder_sparse_step"] = moe.sparse_step;
    json["mlp_only_layers"] = moe.dense_layers;
    json["shared_expert_intermediate_size"] = moe.shared_intermediate_size;
  }
  if (family == ModelFamily::kDeepseek) {
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
  }
  json["router_aux_loss_scope"] = moe.balance_scope == BalanceScope::kGlobal     ? "global"
                                  : moe.balance_scope == BalanceScope::kSequence ? "sequence"
                                                                                 : "micro_batch";
  json["router_z_loss_coef"] = moe.z_coef;
  json["noisy_gating"] = moe.noisy;
  json["router_importance_loss_coef"] = moe.importance_coef;
  json["router_load_loss_coef"] = moe.load_coef;
  json["router_bias_update_speed"] = moe.bias_update_speed;
  json["expert_capacity_factor"] = moe.capacity_factor > 0 ? Json(moe.capacity_factor) : Json();
}

}  // namespace trireme
