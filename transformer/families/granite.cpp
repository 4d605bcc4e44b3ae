// Granite (IBM 2024), dense: Llama's block with four factors: of the embedding, of the softmax, of
// attention and MLP before they are added to the residual stream, and a divisor of the logits.
#include <nlohmann/json.hpp>

#include "transformer/families/common_keys.h"
#include "transformer/families/granite_keys.h"
#include "transformer/families/table.h"

namespace trireme {
namespace {

void add_dense_granite_keys(Schema& schema) {
  add_granite_keys(schema);
  add_mlp_bias(schema);
}

void read_granite(const ConfigValues& values, ModelConfig& config, ConfigReport& report) {
  read_granite_keys(values, config, report);
  config.mlp_bias = values.flag("mlp_bias");
}

void write_granite(const ModelConfig& config, Json& json) {
  write_granite_keys(config, json);
  json["mlp_bias"] = config.mlp_bias;
}

}  // namespace

constinit const Family kGraniteFamily = {
    .id = ModelFamily::kGranite,
    .model_type = "granite",
    .architecture = "GraniteForCausalLM",
    .title = "Granite style model: scaled embedding, softmax, branches and logits",
    .models = "Granite 3.0 to 3.3, dense",
    .special =
        "Llama's block with `embedding_multiplier`, `attention_multiplier`, `residual_multiplier` "
        "and `logits_scaling`",
    .refused = "Mamba layers (`granitemoehybrid`)",
    .positions_key = "max_position_embeddings",
    .names = {},
    .add_keys = add_dense_granite_keys,
    .read = read_granite,
    .write = write_granite};

}  // namespace trireme
