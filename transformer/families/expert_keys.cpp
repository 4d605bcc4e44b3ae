#include "transformer/families/expert_keys.h"

#include <nlohmann/json.hpp>

#include "engine/core/error.h"
#include "transformer/families/common_keys.h"

namespace trireme {
namespace {

void check_choice(const ConfigValues& values, const ExpertKeys& keys, const MoeConfig& moe,
                  ConfigReport& report) {
  if (moe.experts == 0) return;  // reported
  if (moe.groups > 0 && moe.experts % moe.groups != 0)
    report.error(values.spelled("n_group"),
                 concat(moe.groups, " does not divide ", keys.experts, " ", moe.experts));
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
                 "requires scoring_func softmax; sigmoid scores have no noise");
}

}  // namespace

void add_expert_keys(Schema& schema, const ExpertKeys& keys) {
  // transformers may write either name, whatever the family's own is.
  std::vector<std::string> aliases;
  for (const char* name : {"num_local_experts", "num_experts"})
    if (keys.experts != std::string(name)) aliases.emplace_back(name);
  schema.integer(keys.experts, keys.experts_default, "experts of a layer")
      .at_least(1)
      .at_most(kMaxExperts)
      .alias(std::move(aliases));
  schema.integer("num_experts_per_tok", keys.per_token_default, "experts per token")
      .at_least(1)
      .at_most(kMaxExperts);
  schema.number(keys.balance, keys.balance_default, "weight of the loss that balances the experts")
      .at_least(0);
  if (!keys.mixed) return;
  schema.integer("moe_intermediate_size", keys.width_default, "width of an expert's gated MLP")
      .at_least(1)
      .at_most(4 * kMaxWidth);
  schema
      .boolean("norm_topk_prob", keys.normalize_default,
               "the weights of a token's experts add up to 1; null: false")
      .or_null();
}

MoeConfig read_expert_keys(const ConfigValues& values, const ExpertKeys& keys) {
  MoeConfig moe;
  moe.experts = values.integer(keys.experts);
  moe.experts_per_token = values.integer("num_experts_per_tok");
  moe.intermediate_size =
      values.integer(keys.mixed ? "moe_intermediate_size" : "intermediate_size");
  moe.balance_coef = values.number(keys.balance);
  if (keys.mixed) moe.normalize_weights = values.flag("norm_topk_prob");
  return moe;
}

void write_expert_keys(const MoeConfig& moe, const ExpertKeys& keys, Json& json) {
  json[keys.experts] = moe.experts;
  json["num_experts_per_tok"] = moe.experts_per_token;
  json[keys.balance] = moe.balance_coef;
  if (!keys.mixed) return;
  json["moe_intermediate_size"] = moe.intermediate_size;
  json["norm_topk_prob"] = moe.normalize_weights;
}

void add_routing_keys(Schema& schema) {
  schema
      .choice("router_aux_loss_scope", "micro_batch", {"micro_batch", "sequence", "global"},
              "tokens over which the balancing loss compares experts; global: by their shares of "
              "the previous step's batch")
      .or_null();
  schema.number("router_z_loss_coef", "0", "weight of mean logsumexp(router logits)^2").at_least(0);
  schema.boolean("noisy_gating", false, "trained noise on the router logits (Shazeer et al. 2017)");
  schema.number("router_importance_loss_coef", "0", "weight of CV^2 of the experts' weight sums")
      .at_least(0);
  schema.number("router_load_loss_coef", "0", "weight of CV^2 of the experts' loads; noisy_gating")
      .at_least(0);
  schema
      .number(
          "router_bias_update_speed", "0",
          "step of an expert's selection bias towards an even load, per optimizer step; 0: fixed")
      .at_least(0)
      .at_most(1);
  schema
      .number("expert_capacity_factor", "null",
              "capacity factor: tokens beyond this multiple of an expert's even share are dropped, "
              "the last ones of the micro-batch first; null: no token is dropped")
      .or_null()
      .above(0);
}

void read_routing_keys(const ConfigValues& values, const ExpertKeys& keys, MoeConfig& moe,
                       ConfigReport& report) {
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
  check_choice(values, keys, moe, report);
}

void write_routing_keys(const MoeConfig& moe, Json& json) {
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

void note_extra_layers(const ConfigValues& values, const char* key, const ModelConfig& config,
                       ConfigReport& report) {
  if (config.extra_layers > 0 && values.given(key))
    report.note(
        values.spelled(key),
        concat(
            "the ", config.extra_layers, " layers after layer ", config.num_layers - 1,
            ", which predict tokens after the next, are not run; copies of the model keep them"));
}

void add_qwen_layer_keys(Schema& schema) {
  schema.integer("decoder_sparse_step", "1", "interval of layers with experts").at_least(1);
  schema.any("mlp_only_layers", "[]", "list of layer numbers", "layers without experts").or_null();
}

void read_qwen_layer_keys(const ConfigValues& values, MoeConfig& moe, ConfigReport& report) {
  moe.sparse_step = values.integer("decoder_sparse_step");
  moe.sparse_phase = moe.sparse_step - 1;
  const Json layers = values.given("mlp_only_layers") ? values.raw("mlp_only_layers") : Json();
  if (!layers.is_null() && !layers.is_array()) {
    report.error(values.spelled("mlp_only_layers"), "must be a list, got " + shown(layers));
    return;
  }
  if (static_cast<double>(layers.size()) > kMaxLayers) {
    report.error(values.spelled("mlp_only_layers"),
                 concat("holds ", layers.size(), " numbers, and a model has at most ", kMaxLayers,
                        " layers"));
    return;
  }
  for (const Json& layer : layers)
    if (layer.is_number_integer() && layer >= 0)
      moe.dense_layers.push_back(layer.get<int64_t>());
    else
      report.error(values.spelled("mlp_only_layers"),
                   "must hold layer numbers, got " + shown(layer));
}

void write_qwen_layer_keys(const MoeConfig& moe, Json& json) {
  json["decoder_sparse_step"] = moe.sparse_step;
  json["mlp_only_layers"] = moe.dense_layers;
}

}  // namespace trireme
