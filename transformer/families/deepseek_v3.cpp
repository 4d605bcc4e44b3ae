// DeepSeek-V3 and R1 (DeepSeek-AI 2024, arXiv 2412.19437): multi-head latent attention, and experts
// with sigmoid scores, balanced by a selection bias (e_score_correction_bias, RouterState).
#include <nlohmann/json.hpp>

#include "engine/core/error.h"
#include "transformer/families/common_keys.h"
#include "transformer/families/deepseek_keys.h"
#include "transformer/families/expert_keys.h"
#include "transformer/families/table.h"

namespace trireme {
namespace {

constexpr ExpertKeys kDeepseekV3Experts{.experts = "n_routed_experts",
                                        .experts_default = "256",
                                        .per_token_default = "8",
                                        .balance = "aux_loss_alpha",
                                        .balance_default = "0",
                                        .mixed = true,
                                        .width_default = "2048",
                                        .normalise_default = true};

void add_deepseek_v3_keys(Schema& schema) {
  add_decoder_keys(schema, {.positions = "4096", .bos = "0", .eos = "1"});
  add_attention_bias(schema);
  add_latent_keys(schema);
  schema
      .boolean("rope_interleave", true,
               "positions rotate pairs of neighbours, else of halves; null: false")
      .or_null();
  schema
      .integer("num_nextn_predict_layers", "0",
               "multi-token prediction layers after the last layer: left out")
      .alias({"num_mtp_layers"})
      .at_least(0);
  add_expert_keys(schema, kDeepseekV3Experts);
  add_deepseek_expert_keys(schema, {.first_dense = "3",
                                    .shared_experts = "1",
                                    .groups = "8",
                                    .kept_groups = "4",
                                    .weight_scale = "2.5"});
  schema.choice("scoring_func", "sigmoid", {"sigmoid"}, "scores from router logits");
  schema.choice("topk_method", "noaux_tc", {"noaux_tc"},
                "how experts are chosen: from the best groups, with a bias that balances them");
  add_routing_keys(schema);
}

void read_deepseek_v3(const ConfigValues& values, ModelConfig& config, ConfigReport& report) {
  read_decoder_keys(values, config, report);
  read_attention_bias(values, config);
  read_latent_keys(values, config, report);
  config.rope_interleaved = values.flag("rope_interleave");
  config.moe = read_expert_keys(values, kDeepseekV3Experts);
  config.moe.sigmoid_scores = config.moe.selection_bias = true;
  read_deepseek_expert_keys(values, true, config.moe);
  read_routing_keys(values, kDeepseekV3Experts, config.moe, report);
  config.extra_layers = values.integer("num_nextn_predict_layers");
  if (config.extra_layers > 0 && values.given("num_nextn_predict_layers"))
    report.note(values.spelled("num_nextn_predict_layers"),
                concat("the ", config.extra_layers, " layers after layer ", config.num_layers - 1,
                       ", which predict tokens after the next, are left out"));
}

void write_deepseek_v3(const ModelConfig& config, Json& json) {
  write_llama_keys(config, json);
  json["attention_bias"] = config.attention_bias;
  write_latent_keys(config, json);
  json["rope_interleave"] = config.rope_interleaved;
  json["num_nextn_predict_layers"] = config.extra_layers;
  write_expert_keys(config.moe, kDeepseekV3Experts, json);
  write_deepseek_expert_keys(config.moe, json);
  json["scoring_func"] = "sigmoid";
  json["topk_method"] = "noaux_tc";
  write_routing_keys(config.moe, json);
}

}  // namespace

constinit const Family kDeepseekV3Family = {
    .id = ModelFamily::kDeepseekV3,
    .model_type = "deepseek_v3",
    .architecture = "DeepseekV3ForCausalLM",
    .title = "DeepSeek-V3 style model: latent attention, experts with sigmoid scores and a bias",
    .models = "DeepSeek-V3, R1",
    .special = "latent attention; sigmoid scores, whose choice `e_score_correction_bias` moves",
    .refused =
        "values wider than keys; layers for several tokens (`num_nextn_predict_layers`) are left "
        "out with a note",
    .positions_key = "max_position_embeddings",
    .names = {},
    .peft_adapts_fused_experts = true,
    .add_keys = add_deepseek_v3_keys,
    .read = read_deepseek_v3,
    .write = write_deepseek_v3};

}  // namespace trireme
