// GLM-4.5 and 4.6 (GLM-4.5 Team 2025, arXiv 2508.06471): rotary positions on the first half of each
// head, biases of q, k and v, in larger models norms of the heads of q and k, and DeepSeek-V3's
// experts.
#include <nlohmann/json.hpp>

#include "transformer/families/deepseek_keys.h"
#include "transformer/families/glm_keys.h"
#include "transformer/families/table.h"

namespace trireme {
namespace {

constexpr SigmoidExperts kGlm4Experts{.experts = "128",
                                      .width = "1408",
                                      .first_dense = "1",
                                      .groups = "1",
                                      .kept_groups = "1",
                                      .weight_scale = "1"};

void add_glm4_moe_keys(Schema& schema) {
  add_glm_keys(schema,
               {.positions = "131072",
                .norm_eps = "1e-05",
                .bos = "null",
                .eos = "null",
                .kv_heads = "8",
                .vocab = "151552",
                .heads = "96",
                .rotary_factor = "0.5"},
               false);
  schema.boolean("use_qk_norm", false, "RMSNorm of each head's q and k");
  add_sigmoid_expert_keys(schema, kGlm4Experts);
}

void read_glm4_moe(const ConfigValues& values, ModelConfig& config, ConfigReport& report) {
  read_glm_keys(values, config, report);
  config.qk_norm = values.flag("use_qk_norm");
  read_sigmoid_expert_keys(values, kGlm4Experts, config, report);
}

void write_glm4_moe(const ModelConfig& config, Json& json) {
  write_glm_keys(config, json);
  json["use_qk_norm"] = config.qk_norm;
  write_sigmoid_expert_keys(config, kGlm4Experts, json);
}

}  // namespace

constinit const Family kGlm4MoeFamily = {
    .id = ModelFamily::kGlm4Moe,
    .model_type = "glm4_moe",
    .architecture = "Glm4MoeForCausalLM",
    .title =
        "GLM-4.5 style model: half of each head rotated, experts with sigmoid scores and a bias",
    .models = "GLM-4.5, 4.5-Air, 4.6, 4.7",
    .special =
        "`deepseek_v3`'s experts; rotary positions on the first half of each head; biases of q, k "
        "and v; with `use_qk_norm` normalized heads of q and k",
    .refused =
        "layers for several tokens (`num_nextn_predict_layers`) are kept by import and export, not "
        "run",
    .positions_key = "max_position_embeddings",
    .names = {},
    .peft_adapts_fused_experts = true,
    .add_keys = add_glm4_moe_keys,
    .read = read_glm4_moe,
    .write = write_glm4_moe};

}  // namespace trireme
