// Granite (IBM 2024), dense: Llama's block with four factors: of the embedding, of the softmax, of
// attention and MLP before they are added to the residual stream, and a divisor of the logits.
#include <nlohmann/json.hpp>

#include "transformer/families/common_keys.h"
#include "transformer/families/table.h"

namespace trireme {
namespace {

void add_granite_keys(Schema& schema) {
  add_llama_keys(schema, {});
  add_attention_bias(schema);
  add_mlp_bias(schema);
  schema.number("embedding_multiplier", "1", "factor of the token embedding").above(0);
  schema.number("attention_multiplier", "1", "scale of the softmax").above(0);
  schema.number("residual_multiplier", "1", "factor of attention and MLP before the residual add")
      .above(0);
  schema.number("logits_scaling", "1", "divisor of the logits").above(0);
}

void read_granite(const ConfigValues& values, ModelConfig& config, ConfigReport& report) {
  read_llama_keys(values, config, report);
  read_attention_bias(values, config);
  config.mlp_bias = values.flag("mlp_bias");
  config.embedding_scale = values.number("embedding_multiplier");
  config.exact_embedding_scale = true;
  config.attention_scale = values.number("attention_multiplier");
  config.residual_scale = values.number("residual_multiplier");
  config.logits_divisor = values.number("logits_scaling");
}

void write_granite(const ModelConfig& config, Json& json) {
  write_llama_keys(config, json);
  json["attention_bias"] = config.attention_bias;
  json["mlp_bias"] = config.mlp_bias;
  json["embedding_multiplier"] = config.embedding_scale;
  json["attention_multiplier"] = config.attention_scale;
  json["residual_multiplier"] = config.residual_scale;
  json["logits_scaling"] = config.logits_divisor;
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
    .refused = "experts and Mamba layers (`granitemoe`, `granitemoehybrid`)",
    .positions_key = "max_position_embeddings",
    .names = {},
    .add_keys = add_granite_keys,
    .read = read_granite,
    .write = write_granite};

}  // namespace trireme
