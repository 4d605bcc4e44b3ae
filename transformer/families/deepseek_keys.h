// Keys of config.json that DeepSeek's families share.
#pragma once

#include "engine/config/reader.h"
#include "engine/config/schema.h"
#include "transformer/config/model_config.h"

namespace trireme {

// What transformers takes for keys that are absent.
struct DeepseekDefaults {
  const char* first_dense;
  const char* shared_experts;
  const char* groups;
  const char* kept_groups;
  const char* weight_scale;
};

// Which layers have experts, shared experts, groups of experts, the factor of their weights.
void add_deepseek_expert_keys(Schema& schema, const DeepseekDefaults& preset);
// The groups are read where a token's choice is limited to some of them.
void read_deepseek_expert_keys(const ConfigValues& values, bool grouped, MoeConfig& moe);
void write_deepseek_expert_keys(const MoeConfig& moe, Json& json);

// Multi-head latent attention (transformer/layers/latent_attention.h), in the place of head_dim and
// of key/value heads (their number, where it is given, is that of the query heads), and its rotary
// frequencies. Where their scaling has an mscale_all_dim k, the softmax's scale is D^-1/2 m(factor,
// k)^2 (yarn_scale()).
void add_latent_keys(Schema& schema);
void read_latent_keys(const ConfigValues& values, ModelConfig& config, ConfigReport& report);
void write_latent_keys(const ModelConfig& config, Json& json);

}  // namespace trireme
