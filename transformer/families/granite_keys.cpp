#include "transformer/families/granite_keys.h"

#include <nlohmann/json.hpp>

#include "transformer/families/common_keys.h"

namespace trireme {

void add_granite_keys(Schema& schema) {
  add_llama_keys(schema, {});
  add_attention_bias(schema);
  schema.number("embedding_multiplier", "1", "factor of the token embedding").above(0);
  schema.number("attention_multiplier", "1", "scale of the softmax").above(0);
  schema.number("residual_multiplier", "1", "factor of attention and MLP before the residual add")
      .above(0);
  schema.number("logits_scaling", "1", "divisor of the logits").above(0);
}

void read_granite_keys(const ConfigValues& values, ModelConfig& config, ConfigReport& report) {
  read_llama_keys(values, config, report);
  read_attention_bias(values, config);
  config.embedding_scale = values.number("embedding_multiplier");
  config.exact_embedding_scale = true;
  config.attention_scale = values.number("attention_multiplier");
  config.residual_scale = values.number("residual_multiplier");
  config.logits_divisor = values.number("logits_scaling");
}

void write_granite_keys(const ModelConfig& config, Json& json) {
  write_llama_keys(config, json);
  json["attention_bias"] = config.attention_bias;
  json["embedding_multiplier"] = config.embedding_scale;
  json["attention_multiplier"] = config.attention_scale;
  json["residual_multiplier"] = config.residual_scale;
  json["logits_scaling"] = config.logits_divisor;
}

}  // namespace trireme
