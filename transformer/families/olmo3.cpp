// OLMo 3 (Olmo Team 2025, arXiv 2512.13961): OLMo 2's block, with a sliding window in three of four
// layers, whose rotary frequencies are not scaled.
#include <nlohmann/json.hpp>

#include "transformer/families/common_keys.h"
#include "transformer/families/rope_keys.h"
#include "transformer/families/table.h"
#include "transformer/families/window_keys.h"

namespace trireme {
namespace {

constexpr int64_t kFullInterval = 4;  // of layers with full attention

void add_olmo3_keys(Schema& schema) {
  add_decoder_keys(schema, {.norm_eps = "1e-05", .bos = "null", .eos = "50279"});
  add_silu_gate(schema);
  add_head_dim(schema, "null");
  add_attention_bias(schema);
  add_listed_window_keys(schema);
  add_windowed_rope_keys(schema, "500000");
}

void read_olmo3(const ConfigValues& values, ModelConfig& config, ConfigReport& report) {
  read_decoder_keys(values, config, report);
  read_head_dim(values, config, report);
  read_attention_bias(values, config);
  read_listed_window_keys(values, kFullInterval, config, report);
  read_windowed_rope_keys(values, config, report);
  config.pre_norms = false;
  config.post_norms = config.qk_norm_whole = true;
}

void write_olmo3(const ModelConfig& config, Json& json) {
  write_decoder_keys(config, json);
  json["head_dim"] = config.head_dim;
  json["hidden_act"] = "silu";
  json["attention_bias"] = config.attention_bias;
  write_listed_window_keys(config, json);
  write_windowed_rope_keys(config, json);
}

}  // namespace

constinit const Family kOlmo3Family = {
    .id = ModelFamily::kOlmo3,
    .model_type = "olmo3",
    .architecture = "Olmo3ForCausalLM",
    .title = "OLMo 3 style model: OLMo 2's block, windows in most layers",
    .models = "OLMo 3, 3.1",
    .special = "`olmo2`'s block; windows in three of four layers, whose positions are not scaled",
    .positions_key = "max_position_embeddings",
    .names = {.attention_post_norm = "post_attention_layernorm",
              .mlp_post_norm = "post_feedforward_layernorm"},
    .qk_norm = true,
    .layer_types = true,
    .add_keys = add_olmo3_keys,
    .read = read_olmo3,
    .write = write_olmo3};

}  // namespace trireme
