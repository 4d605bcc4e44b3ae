// DeepSeek-V3 and R1 (DeepSeek-AI 2024, arXiv 2412.19437): multi-head latent attention, and experts
// with sigmoid scores, balanced by a selection bias (e_score_correction_bias, RouterState).
#include <nlohmann/json.hpp>

#include "transformer/families/deepseek_keys.h"
#include "transformer/families/table.h"

namespace trireme {
namespace {

void add_deepseek_v3_keys(Schema& schema) {
  add_deepseek_v3_attention_keys(schema);
  schema
      .boolean("rope_interleave", true,
               "positions rotate pairs of neighbours, else of halves; null: false")
      .or_null();
  add_deepseek_v3_layer_keys(schema);
}

void read_deepseek_v3(const ConfigValues& values, ModelConfig& config, ConfigReport& report) {
  read_deepseek_v3_keys(values, config, report);
  config.rope_interleaved = values.flag("rope_interleave");
}

void write_deepseek_v3(const ModelConfig& config, Json& json) {
  write_deepseek_v3_attention_keys(config, json);
  json["rope_interleave"] = config.rope_interleaved;
  write_deepseek_v3_layer_keys(config, json);
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
        "values wider than keys; layers for several tokens (`num_nextn_predict_layers`) are kept "
        "by import and export, not run",
    .positions_key = "max_position_embeddings",
    .names = {},
    .peft_adapts_fused_experts = true,
    .add_keys = add_deepseek_v3_keys,
    .read = read_deepseek_v3,
    .write = write_deepseek_v3};

}  // namespace trireme
