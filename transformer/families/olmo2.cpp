// OLMo 2 (Walsh et al. 2025, arXiv 2501.00656): Llama's block with norms of the outputs of
// attention and MLP in place of their inputs, and norms of q and of k over all heads together.
#include <nlohmann/json.hpp>

#include "transformer/families/common_keys.h"
#include "transformer/families/table.h"

namespace trireme {
namespace {

void add_olmo2_keys(Schema& schema) {
  add_llama_keys(schema, {.norm_eps = "1e-05", .bos = "null", .eos = "50279"});
  add_attention_bias(schema);
}

void read_olmo2(const ConfigValues& values, ModelConfig& config, ConfigReport& report) {
  read_llama_keys(values, config, report);
  read_attention_bias(values, config);
  config.pre_norms = false;
  config.post_norms = config.qk_norm_whole = true;
}

void write_olmo2(const ModelConfig& config, Json& json) {
  write_llama_keys(config, json);
  json["attention_bias"] = config.attention_bias;
}

}  // namespace

constinit const Family kOlmo2Family = {
    .id = ModelFamily::kOlmo2,
    .model_type = "olmo2",
    .architecture = "Olmo2ForCausalLM",
    .title = "OLMo 2 style model: norms after attention and MLP, and of all heads of q and k",
    .models = "OLMo 2",
    .special =
        "norms of the outputs of attention and MLP, none of their inputs; norms of all heads of q "
        "together, and of k",
    .positions_key = "max_position_embeddings",
    .names = {.attention_post_norm = "post_attention_layernorm",
              .mlp_post_norm = "post_feedforward_layernorm"},
    .qk_norm = true,
    .add_keys = add_olmo2_keys,
    .read = read_olmo2,
    .write = write_olmo2};

}  // namespace trireme
