// MiniMax M2 (MiniMax 2025): norms of all heads of q together, and of k; rotary positions on a part
// of each head; Mixtral's experts with sigmoid scores and a selection bias.
#include <nlohmann/json.hpp>

#include "engine/core/error.h"
#include "transformer/families/common_keys.h"
#include "transformer/families/expert_keys.h"
#include "transformer/families/rope_keys.h"
#include "transformer/families/table.h"

namespace trireme {
namespace {

constexpr ExpertKeys kMiniMaxExperts{.experts = "num_local_experts",
                                     .experts_default = "256",
                                     .per_token_default = "8",
                                     .balance = "router_aux_loss_coef",
                                     .mixed = false};

constexpr const char* kRotaryDim = "rotary_dim";

void add_minimax_m2_keys(Schema& schema) {
  add_llama_keys(schema, {.positions = "196608",
                          .rope_theta = "5000000",
                          .bos = "200034",
                          .eos = "200020",
                          .kv_heads = "8",
                          .head_dim = "128",
                          .vocab = "200064",
                          .heads = "48",
                          .rotary_factor = "1"});
  schema
      .integer(kRotaryDim, "null",
               "elements of each head that are rotated, even; null: by partial_rotary_factor")
      .or_null()
      .at_least(2)
      .at_most(kMaxWidth);
  add_expert_keys(schema, kMiniMaxExperts);
  schema.choice("scoring_func", "sigmoid", {"sigmoid"}, "scores from router logits");
  schema.choice("qk_norm_type", "per_layer", {"per_layer"},
                "norm of q and k: of all heads of a layer together");
  schema.unavailable("use_routing_bias", {"true"}, "a choice of experts without a bias");
  schema.unavailable("shared_intermediate_size", {"0"}, "shared experts");
  schema
      .integer("num_mtp_modules", "0",
               "multi-token prediction layers after the last layer: kept by copies, not run")
      .at_least(0)
      .at_most(kMaxLayers);
  // Width of a dense MLP, which no layer has; properties of the layers that are not run.
  for (const char* key : {"mlp_intermediate_size", "use_mtp", "mtp_transformer_layers",
                          "attn_type_list", "shared_moe_mode"})
    schema.ignored(key);
  add_routing_keys(schema);
}

void check_rotary_dim(const ConfigValues& values, const ModelConfig& config, ConfigReport& report) {
  const int64_t rotated = values.integer(kRotaryDim);
  const int64_t least = config.rope_scaling.type == RopeType::kDynamic ? 4 : 2;
  if (rotated % 2 != 0 || rotated < least || rotated > config.head_dim)
    report.error(values.spelled(kRotaryDim),
                 concat(rotated, " is not an even number of at least ", least,
                        " and at most head_dim ", config.head_dim));
  else if (rotated != rotary_width(config))
    report.error(values.spelled(kRotaryDim),
                 concat(rotated, " is not the part ", values.number("partial_rotary_factor"),
                        " of head_dim ", config.head_dim, " that partial_rotary_factor names"));
}

void read_minimax_m2(const ConfigValues& values, ModelConfig& config, ConfigReport& report) {
  read_decoder_keys(values, config, report);
  read_head_dim(values, config, report);
  const int64_t rotated = values.integer(kRotaryDim);  // 0: null
  if (rotated != config.head_dim) config.rotary_dim = rotated;
  read_rope_keys(values, config, report);
  if (rotated > 0) check_rotary_dim(values, config, report);
  config.qk_norm_whole = true;
  config.moe = read_expert_keys(values, kMiniMaxExperts);
  config.moe.sigmoid_scores = config.moe.selection_bias = true;
  read_routing_keys(values, kMiniMaxExperts, config.moe, report);
  config.extra_layers = values.integer("num_mtp_modules");
  note_extra_layers(values, "num_mtp_modules", config, report);
}

void write_minimax_m2(const ModelConfig& config, Json& json) {
  write_llama_keys(config, json);
  json[kRotaryDim] = rotary_width(config);
  json["num_mtp_modules"] = config.extra_layers;
  write_expert_keys(config.moe, kMiniMaxExperts, json);
  write_routing_keys(config.moe, json);
}

}  // namespace

constinit const Family kMiniMaxM2Family = {
    .id = ModelFamily::kMiniMaxM2,
    .model_type = "minimax_m2",
    .architecture = "MiniMaxM2ForCausalLM",
    .title = "MiniMax M2 style model: norms of all heads of q and k, experts with sigmoid scores",
    .models = "MiniMax M2, M2.1, M2.5",
    .special =
        "norms of all heads of q together, and of k; rotary positions on a part of each head "
        "(`rotary_dim`); sigmoid scores of experts with a selection bias, none shared",
    .refused =
        "layers for several tokens (`num_mtp_modules`) are kept by import and export, not run",
    .positions_key = "max_position_embeddings",
    .names = {.experts = "block_sparse_moe",
              .expert_gate = "w1",
              .expert_up = "w3",
              .expert_down = "w2",
              .selection_bias = "e_score_correction_bias"},
    .qk_norm = true,
    .add_keys = add_minimax_m2_keys,
    .read = read_minimax_m2,
    .write = write_minimax_m2};

}  // namespace trireme
