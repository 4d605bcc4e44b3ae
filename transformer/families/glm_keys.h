// Keys of config.json that the GLM families share: Llama's, with biases of q, k and v, and rotary
// positions on the first part of each head, by default half.
#pragma once

#include "transformer/families/common_keys.h"

namespace trireme {

// transformers' defaults of glm and glm4.
inline constexpr LlamaDefaults kGlm4Defaults{.positions = "131072",
                                             .norm_eps = "1.5625e-07",
                                             .bos = "null",
                                             .eos = "[151329, 151336, 151338]",
                                             .kv_heads = "2",
                                             .head_dim = "128",
                                             .vocab = "151552",
                                             .heads = "32",
                                             .rotary_factor = "0.5"};
// biased: default of "attention_bias".
void add_glm_keys(Schema& schema, const LlamaDefaults& preset, bool biased);
void read_glm_keys(const ConfigValues& values, ModelConfig& config, ConfigReport& report);
void write_glm_keys(const ModelConfig& config, Json& json);

}  // namespace trireme
