#include "transformer/families/glm_keys.h"

#include <nlohmann/json.hpp>

namespace trireme {

void add_glm_keys(Schema& schema, const LlamaDefaults& preset, bool biased) {
  add_llama_keys(schema, preset);
  schema.boolean("attention_bias", biased, "biases of the q, k and v projections");
}

void read_glm_keys(const ConfigValues& values, ModelConfig& config, ConfigReport& report) {
  read_llama_keys(values, config, report);
  config.attention_bias = values.flag("attention_bias");
}

void write_glm_keys(const ModelConfig& config, Json& json) {
  write_llama_keys(config, json);
  if (config.rotary_dim == 0) json["partial_rotary_factor"] = 1;
  json["attention_bias"] = config.attention_bias;
}

}  // namespace trireme
