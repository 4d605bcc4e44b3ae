// Model of any family, small enough to generate text in a test.
#pragma once

#include "transformer/config/model_config.h"

namespace trireme::test {

inline ModelConfig tiny_model(ModelFamily family) {
  ModelConfig c;
  c.family = family;
  c.layer_norm = c.learned_positions = family == ModelFamily::kGpt2;
  c.gated_mlp = family != ModelFamily::kGpt2;
  c.vocab_size = 37;
  c.hidden_size = 24;
  c.intermediate_size = 40;
  c.num_layers = 2;
  c.num_heads = 4;
  c.num_kv_heads = family == ModelFamily::kGpt2 ? 4 : 2;
  c.head_dim = 6;
  c.max_positions = 48;
  c.initializer_range =
      family == ModelFamily::kLlama4 ? 0.45 : 0.2;  // large enough that tokens differ
  c.attention_bias = c.attention_output_bias = c.mlp_bias = family == ModelFamily::kGpt2;
  c.tie_word_embeddings = family == ModelFamily::kGpt2;
  if (family == ModelFamily::kGemma3) {
    c.qk_norm = c.zero_centered_gamma = c.post_norms = c.gelu_gate = c.tie_word_embeddings = true;
    c.embedding_scale = 0.5;  // else the tied head would find the last token in its embedding
    c.windows = {7, 0, 7};    // also of the third layer that some tests add
    c.local_rope_theta = 100;
  }
  if (family == ModelFamily::kGemma2) {
    c.zero_centered_gamma = c.post_norms = c.gelu_gate = c.tie_word_embeddings = true;
    c.embedding_scale = 0.5;
    c.windows = {7, 0, 7};
    c.attention_soft_cap = 1.5;
    c.logits_soft_cap = 4;
  }
  if (family == ModelFamily::kDeepseekV3 || family == ModelFamily::kKimiK2) {
    c.latent = {.q_rank = 10, .kv_rank = 9, .nope_dim = 5, .rope_dim = 2, .value_dim = 4};
    c.head_dim = 7;
    c.num_kv_heads = c.num_heads;
    c.rope_interleaved = true;
  }
  if (family == ModelFamily::kSmolLm3) {
    c.rope_layers = {0, 1, 1};
    c.windows = {5, 0, 0};
  }
  if (family == ModelFamily::kGranite) {
    c.embedding_scale = 3;
    c.exact_embedding_scale = true;
    c.attention_scale = 0.3;
    c.residual_scale = 0.7;
    c.logits_divisor = 0.6;
  }
  if (family == ModelFamily::kOlmo2) {
    c.pre_norms = false;
    c.post_norms = c.qk_norm = c.qk_norm_whole = true;
  }
  if (family == ModelFamily::kGlm4) {
    c.post_norms = c.attention_bias = c.rope_interleaved = true;
    c.rotary_dim = c.head_dim / 4 * 2;
  }
  if (family == ModelFamily::kMistral) c.windows = {5, 0, 5};
  if (family == ModelFamily::kQwen3) {
    c.qk_norm = true;
    c.rope_scaling = {.type = RopeType::kYarn, .factor = 4, .original_positions = 12};
  }
  const bool gpt_oss = family == ModelFamily::kGptOss;
  if (gpt_oss) {
    c.attention_bias = c.attention_output_bias = c.attention_sinks = true;
    c.windows = {5, 0, 5};
    c.clamped_gate = ClampedGate{.limit = 0.3};
    c.moe.expert_bias = c.moe.router_bias = true;
  }
  const bool llama4 = family == ModelFamily::kLlama4;
  if (llama4) {
    c.qk_norm = c.qk_norm_after_rope = c.qk_norm_weightless = c.rope_interleaved = true;
    c.rope_layers = c.chunked_layers = {1, 0, 1};
    c.attention_chunk = 16;
    c.query_scaling = 0.4;
    c.unrotated_scaling = 3;
  }
  if (family != ModelFamily::kMixtral && family != ModelFamily::kKimiK2 && !gpt_oss && !llama4)
    return c;
  c.moe.experts = 3;
  c.moe.experts_per_token = 2;
  c.moe.intermediate_size = 13;
  if (family == ModelFamily::kMixtral || gpt_oss) return c;
  if (llama4) {
    c.moe.sigmoid_scores = c.moe.scaled_inputs = c.moe.choose_by_logits = true;
    c.moe.normalize_weights = false;
    c.moe.shared_intermediate_size = 13;
    return c;
  }
  c.moe.sigmoid_scores = c.moe.selection_bias = true;
  c.moe.shared_intermediate_size = 13;
  c.moe.weight_scale = 2.5;
  c.moe.first_sparse = 1;
  return c;
}

}  // namespace trireme::test
