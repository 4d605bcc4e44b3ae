// GLM-4 of 2024 (Team GLM 2024, arXiv 2406.12793) as transformers has it: Llama's block with biases
// of q, k and v, rotary positions of neighbouring elements on the first half of each head, and gate
// and up-projection in one tensor of the file.
#include <nlohmann/json.hpp>

#include "transformer/families/glm_keys.h"
#include "transformer/families/table.h"

namespace trireme {
namespace {

void add_glm_keys(Schema& schema) { add_glm_keys(schema, kGlm4Defaults, true); }

void read_glm(const ConfigValues& values, ModelConfig& config, ConfigReport& report) {
  read_glm_keys(values, config, report);
  config.rope_interleaved = true;
}

}  // namespace

constinit const Family kGlmFamily = {
    .id = ModelFamily::kGlm,
    .model_type = "glm",
    .architecture = "GlmForCausalLM",
    .title = "GLM-4 style model of 2024: half of each head rotated",
    .models = "GLM-4-9B (the `-hf` directories), GLM-Edge",
    .special =
        "biases of q, k and v, none of o; rotary positions of neighbouring elements on the first "
        "half of each head",
    .positions_key = "max_position_embeddings",
    .names = {},
    .fused_gate_up = true,
    .add_keys = add_glm_keys,
    .read = read_glm,
    .write = write_glm_keys};

}  // namespace trireme
