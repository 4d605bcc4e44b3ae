// ERNIE 4.5, dense (Baidu 2025): Llama's block whose rotary positions are of neighbouring elements.
#include <nlohmann/json.hpp>

#include "transformer/families/common_keys.h"
#include "transformer/families/table.h"

namespace trireme {
namespace {

void add_ernie4_5_keys(Schema& schema) {
  add_llama_keys(schema, {.positions = "131072",
                          .rope_theta = "500000",
                          .norm_eps = "1e-05",
                          .kv_heads = "2",
                          .head_dim = "128",
                          .vocab = "103424",
                          .heads = "16",
                          .tied = true});
  schema.boolean("use_bias", false, "biases of all projections").or_null();
}

void read_ernie4_5(const ConfigValues& values, ModelConfig& config, ConfigReport& report) {
  read_llama_keys(values, config, report);
  config.rope_interleaved = true;
  config.attention_bias = config.attention_output_bias = config.mlp_bias = values.flag("use_bias");
}

void write_ernie4_5(const ModelConfig& config, Json& json) {
  write_llama_keys(config, json);
  json["use_bias"] = config.attention_bias;
}

}  // namespace

constinit const Family kErnie45Family = {
    .id = ModelFamily::kErnie45,
    .model_type = "ernie4_5",
    .architecture = "Ernie4_5ForCausalLM",
    .title = "ERNIE 4.5 style model, dense: rotary positions of neighbouring elements",
    .models = "ERNIE 4.5, dense",
    .special = "rotary positions of neighbouring elements; with `use_bias` biases everywhere",
    .refused = "experts (`ernie4_5_moe`)",
    .positions_key = "max_position_embeddings",
    .names = {},
    .add_keys = add_ernie4_5_keys,
    .read = read_ernie4_5,
    .write = write_ernie4_5};

}  // namespace trireme
