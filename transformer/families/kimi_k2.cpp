// Kimi K2 (Kimi Team 2025, arXiv 2507.20534): DeepSeek-V3's architecture with more experts, in one
// group, and fewer heads. Its directories name DeepSeek-V3's class and bring its code, which always
// rotates pairs of neighbours.
#include <nlohmann/json.hpp>

#include "transformer/families/deepseek_keys.h"
#include "transformer/families/table.h"

namespace trireme {
namespace {

void add_kimi_k2_keys(Schema& schema) {
  add_deepseek_v3_attention_keys(schema);
  schema.refused("rope_interleave", {"true"}, "this family rotates pairs of neighbours");
  add_deepseek_v3_layer_keys(schema);
}

void read_kimi_k2(const ConfigValues& values, ModelConfig& config, ConfigReport& report) {
  read_deepseek_v3_keys(values, config, report);
  config.rope_interleaved = true;
  // Its code normalizes only where a token has several experts; transformers' class always does.
  if (config.moe.experts_per_token == 1) config.moe.normalize_weights = false;
}

void write_kimi_k2(const ModelConfig& config, Json& json) {
  write_deepseek_v3_attention_keys(config, json);
  write_deepseek_v3_layer_keys(config, json);
}

}  // namespace

constinit const Family kKimiK2Family = {
    .id = ModelFamily::kKimiK2,
    .model_type = "kimi_k2",
    .architecture = "DeepseekV3ForCausalLM",
    .title = "Kimi K2 style model: DeepSeek-V3's architecture, its experts in one group",
    .models = "Kimi K2",
    .special =
        "`deepseek_v3`'s architecture, with one group of experts; pairs of neighbours always "
        "rotate",
    .refused = "values wider than keys; images (K2.5)",
    .positions_key = "max_position_embeddings",
    .names = {},
    .add_keys = add_kimi_k2_keys,
    .read = read_kimi_k2,
    .write = write_kimi_k2};

}  // namespace trireme
