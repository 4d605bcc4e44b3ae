// GLM-4-0414 (Zhipu AI 2025): the block of glm.cpp with norms after attention and MLP besides those
// before.
#include <nlohmann/json.hpp>

#include "transformer/families/glm_keys.h"
#include "transformer/families/table.h"

namespace trireme {
namespace {

void add_glm4_keys(Schema& schema) { add_glm_keys(schema, kGlm4Defaults, true); }

void read_glm4(const ConfigValues& values, ModelConfig& config, ConfigReport& report) {
  read_glm_keys(values, config, report);
  config.rope_interleaved = true;
  config.post_norms = true;
}

}  // namespace

constinit const Family kGlm4Family = {
    .id = ModelFamily::kGlm4,
    .model_type = "glm4",
    .architecture = "Glm4ForCausalLM",
    .title = "GLM-4-0414 style model: half of each head rotated, norms after attention and MLP",
    .models = "GLM-4-0414, GLM-Z1",
    .special = "`glm`'s block, with norms after attention and MLP, too",
    .positions_key = "max_position_embeddings",
    .names = {.attention_post_norm = "post_self_attn_layernorm",
              .mlp_post_norm = "post_mlp_layernorm"},
    .fused_gate_up = true,
    .add_keys = add_glm4_keys,
    .read = read_glm4,
    .write = write_glm_keys};

}  // namespace trireme
