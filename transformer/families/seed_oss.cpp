// Seed-OSS (ByteDance 2025): Llama's block with biases of q, k and v, and dropout of the branches.
#include <nlohmann/json.hpp>

#include "transformer/families/common_keys.h"
#include "transformer/families/table.h"

namespace trireme {
namespace {

void add_seed_oss_keys(Schema& schema) {
  add_llama_keys(schema, {.positions = "524288",
                          .bos = "0",
                          .kv_heads = "8",
                          .head_dim = "128",
                          .vocab = "155136",
                          .heads = "80",
                          .attention_dropout = "0.1"});
  schema.boolean("attention_bias", true, "biases of the q, k and v projections");
  schema.boolean("attention_out_bias", false, "bias of the o projection");
  add_mlp_bias(schema);
  schema.number("residual_dropout", "0.1", "dropout of attention and MLP before the residual add")
      .at_least(0)
      .below(1);
}

void read_seed_oss(const ConfigValues& values, ModelConfig& config, ConfigReport& report) {
  read_llama_keys(values, config, report);
  config.attention_bias = values.flag("attention_bias");
  config.attention_output_bias = values.flag("attention_out_bias");
  config.mlp_bias = values.flag("mlp_bias");
  config.residual_dropout = values.number("residual_dropout");
}

void write_seed_oss(const ModelConfig& config, Json& json) {
  write_llama_keys(config, json);
  json["attention_bias"] = config.attention_bias;
  json["attention_out_bias"] = config.attention_output_bias;
  json["mlp_bias"] = config.mlp_bias;
  json["residual_dropout"] = config.residual_dropout;
}

}  // namespace

constinit const Family kSeedOssFamily = {
    .id = ModelFamily::kSeedOss,
    .model_type = "seed_oss",
    .architecture = "SeedOssForCausalLM",
    .title = "Seed-OSS style model: biases of q, k and v, dropout of the branches",
    .models = "Seed-OSS",
    .special = "biases of q, k and v, none of o; dropout of attention and MLP",
    .positions_key = "max_position_embeddings",
    .names = {},
    .add_keys = add_seed_oss_keys,
    .read = read_seed_oss,
    .write = write_seed_oss};

}  // namespace trireme
