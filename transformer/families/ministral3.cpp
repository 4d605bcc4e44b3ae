// Ministral 3 (Mistral AI 2025): Mistral's block, whose queries grow with their position beyond the
// original context. Also the text part of mistral3.
#include <nlohmann/json.hpp>

#include "transformer/families/common_keys.h"
#include "transformer/families/table.h"
#include "transformer/families/window_keys.h"

namespace trireme {
namespace {

constexpr const char* kScaling = "rope_parameters.llama_4_scaling_beta";

void add_ministral3_keys(Schema& schema) {
  add_llama_keys(schema, {.positions = "262144",
                          .norm_eps = "1e-05",
                          .kv_heads = "8",
                          .head_dim = "128",
                          .vocab = "131072",
                          .heads = "32"});
  add_window_key(schema, "null");
  schema
      .number(kScaling, "null",
              "beta: queries at position p are multiplied by 1 + beta ln(1 + floor(p / "
              "original_max_position_embeddings)); null: 0")
      .or_null()
      .at_least(0)
      .alias({"rope_scaling.llama_4_scaling_beta"});
  for (const char* key :
       {"rope_parameters.max_position_embeddings", "rope_scaling.max_position_embeddings"})
    schema.ignored(key);
}

// Rotary parameters of transformers where the file has none.
void set_default_rotary(const ConfigValues& values, ModelConfig& config, ConfigReport& report) {
  config.rope_theta = 1000000;
  config.rope_scaling = {.type = RopeType::kYarn,
                         .factor = 16,
                         .original_positions = 16384,
                         .mscale = 1,
                         .mscale_all_dim = 1};
  config.query_scaling = 0.1;
  for (const char* key : {"rope_theta", kScaling})
    if (values.given(key))
      report.error(values.spelled(key), "is not read without a rope_type in rope_parameters");
}

void read_ministral3(const ConfigValues& values, ModelConfig& config, ConfigReport& report) {
  read_llama_keys(values, config, report);
  read_window_key(values, config, report);
  config.query_scaling = values.number(kScaling);
  const char *const type = "rope_scaling.rope_type", *const older = "rope_scaling.type";
  if (!values.given(type) && !values.given(older))
    set_default_rotary(values, config, report);
  else if (config.rope_scaling.type != RopeType::kYarn)
    report.error(values.spelled(values.given(type) ? type : older),
                 "is not yarn, the type of this family");
}

void write_ministral3(const ModelConfig& config, Json& json) {
  write_llama_keys(config, json);
  write_window_key(config, json);
  Json parameters = json["rope_scaling"];
  parameters["rope_theta"] = config.rope_theta;
  parameters["llama_4_scaling_beta"] = config.query_scaling;
  json.erase("rope_scaling");
  json.erase("rope_theta");
  json["rope_parameters"] = std::move(parameters);
}

}  // namespace

constinit const Family kMinistral3Family = {
    .id = ModelFamily::kMinistral3,
    .model_type = "ministral3",
    .architecture = "Ministral3ForCausalLM",
    .title = "Ministral 3 style model: queries scaled by their position",
    .models = "Ministral 3, and the text part of `mistral3`",
    .special = "`yarn`, and queries scaled by their position (`llama_4_scaling_beta`)",
    .refused = "images",
    .positions_key = "max_position_embeddings",
    .names = {},
    .add_keys = add_ministral3_keys,
    .read = read_ministral3,
    .write = write_ministral3};

}  // namespace trireme
