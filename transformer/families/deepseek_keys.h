// Keys of config.json that the DeepSeek families share.
#pragma once

#include "engine/config/reader.h"
#include "engine/config/schema.h"
#include "transformer/config/model_config.h"

namespace trireme {

// transformers' default values of absent keys.
struct DeepseekDefaults {
  const char* first_dense;
  const char* shared_experts;
  const char* groups;
  const char* kept_groups;
  const char* weight_scale;
};

// Keys of the sparse layers, the shared experts, the groups of experts and the factor of the
// experts' weights.
void add_deepseek_expert_keys(Schema& schema, const DeepseekDefaults& preset);
// Requires moe.intermediate_size to be read before. grouped: also reads the groups that limit the
// experts selected for a token.
void read_deepseek_expert_keys(const ConfigValues& values, bool grouped, MoeConfig& moe);
void write_deepseek_expert_keys(const MoeConfig& moe, Json& json);

// Multi-head latent attention (transformer/layers/latent_attention.h) and its rotary frequencies.
// Its keys replace head_dim and num_key_value_heads (which must equal the number of query heads if
// given). If the rotary scaling has an mscale_all_dim k, the softmax scale is D^-1/2 m(factor, k)^2
// (yarn_scale()).
void add_latent_keys(Schema& schema);
void read_latent_keys(const ConfigValues& values, ModelConfig& config, ConfigReport& report);
void write_latent_keys(const ModelConfig& config, Json& json);

// Defaults of the keys of DeepSeek-V3's experts, by default DeepSeek-V3's own.
struct SigmoidExperts {
  const char* experts = "256";
  const char* width = "2048";
  const char* first_dense = "3";
  const char* groups = "8";
  const char* kept_groups = "4";
  const char* weight_scale = "2.5";
};
// Keys of DeepSeek-V3's experts and of the layers for multi-token prediction.
void add_sigmoid_expert_keys(Schema& schema, const SigmoidExperts& preset);
void read_sigmoid_expert_keys(const ConfigValues& values, const SigmoidExperts& preset,
                              ModelConfig& config, ConfigReport& report);
void write_sigmoid_expert_keys(const ModelConfig& config, const SigmoidExperts& preset, Json& json);

// Keys of DeepSeek-V3 and of models with its architecture: sizes and latent attention, then
// multi-token prediction and experts. A family adds its own rows between the two, and sets
// ModelConfig::rope_interleaved.
void add_deepseek_v3_attention_keys(Schema& schema);
void add_deepseek_v3_layer_keys(Schema& schema);
void read_deepseek_v3_keys(const ConfigValues& values, ModelConfig& config, ConfigReport& report);
void write_deepseek_v3_attention_keys(const ModelConfig& config, Json& json);
void write_deepseek_v3_layer_keys(const ModelConfig& config, Json& json);

}  // namespace trireme
