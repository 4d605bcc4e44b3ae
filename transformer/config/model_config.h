// Hyperparameters of a model: the content of HuggingFace's config.json, in one form for all
// families.
//
// Layers read the properties here (which norm, which positions, which MLP), never the family. The
// family only defines how config.json spells the properties and how the parameters are named
// (transformer/families).
//
// A config.json must give most sizes; other absent keys have HuggingFace's defaults (gpt2: dropout
// 0.1, tied head). Keys without effect on the results are ignored. A key that would change them in
// an unsupported way is refused by name.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/ops/rows/clamped_gate.h"
#include "transformer/config/moe_config.h"
#include "transformer/config/rope.h"

namespace trireme {

enum class ModelFamily {
  kGpt2,
  kLlama,
  kMistral,
  kQwen2,
  kQwen3,
  kMixtral,
  kQwen2Moe,
  kQwen3Moe,
  kDeepseek,
  kDeepseekV2,
  kDeepseekV3,
  kGemma3,
  kKimiK2,
  kSmolLm3,
  kGranite,
  kOlmo2,
  kOlmo3,
  kSeedOss,
  kGlm,
  kGlm4,
  kGlm4Moe,
  kMiniMaxM2,
  kPhi3,
  kMinistral3,
  kErnie45,
  kExaone4,
  kHunyuanDense,
  kGptOss,
  kGraniteMoe,
  kGemma2,
  kLlama4
};

// Multi-head latent attention (transformer/layers/latent_attention.h). Head width D = nope_dim +
// rope_dim.
struct LatentConfig {
  int64_t q_rank = 0;     // Rq; 0: queries are projected from the residual stream
  int64_t kv_rank = 0;    // Rkv; 0: the model has no latent attention
  int64_t nope_dim = 0;   // Dn
  int64_t rope_dim = 0;   // Dr, even
  int64_t value_dim = 0;  // Dv, at most D
  bool operator==(const LatentConfig&) const = default;
};

struct ModelConfig {
  ModelFamily family = ModelFamily::kLlama;
  int64_t vocab_size = 0;         // V, logical
  int64_t hidden_size = 0;        // C
  int64_t intermediate_size = 0;  // F
  int64_t num_layers = 0;         // L
  int64_t num_heads = 0;          // H
  int64_t num_kv_heads = 0;       // Hkv
  int64_t head_dim = 0;           // D
  int64_t max_positions = 0;      // P
  double rope_theta = 10000.0;
  RopeScaling rope_scaling;
  // RoPE base of the layers with a window, whose frequencies are not scaled; 0: rope_theta.
  double local_rope_theta = 0;
  // Rotated queries at position p are multiplied by 1 + query_scaling ln(1 + floor(p / P0)), P0 =
  // rope_scaling.original_positions; 0: no scaling.
  double query_scaling = 0;
  // S > 0: instead only queries of layers without rotary positions are multiplied, by 1 +
  // query_scaling ln(1 + floor((p + 1) / S)) (Llama 4's temperature).
  int64_t unrotated_scaling = 0;
  bool rope_interleaved = false;  // rotates adjacent pairs (engine/ops/attention/rotary.h)
  int64_t rotary_dim = 0;         // first elements of each head that are rotated, even; 0: all
  double attention_scale = 0;     // softmax scale; 0: 1 / sqrt(D)
  double attention_soft_cap = 0;  // c of c tanh(score / c); 0: none
  double norm_eps = 1e-5;
  double initializer_range = 0.02;
  double residual_dropout = 0.0;
  double embedding_dropout = 0.0;
  double attention_dropout = 0.0;
  bool layer_norm = false;                  // LayerNorm, with biases; else RMSNorm
  bool learned_positions = false;           // a table of P rows, added to the embedding; else RoPE
  bool gated_mlp = true;                    // down(silu(gate x) * up x); else down(gelu_tanh(up x))
  bool gelu_gate = false;                   // gated MLP with gelu_tanh instead of silu
  std::optional<ClampedGate> clamped_gate;  // gated MLP and experts: this unit instead of SwiGLU
  bool zero_centered_gamma = false;         // RMSNorm multiplies by 1 + w
  bool pre_norms = true;                    // norms of the inputs of attention and MLP
  bool post_norms = false;             // post-norms of attention and MLP, before the residual add
  double embedding_scale = 1;          // factor of the token embedding
  bool exact_embedding_scale = false;  // that factor is not rounded to the dtype first
  double residual_scale = 1;           // factor of attention and MLP before the residual add
  double logits_divisor = 1;           // logits are divided by it
  double logits_soft_cap = 0;          // c of c tanh(logit / c); 0: none
  bool tie_word_embeddings = false;
  bool qk_norm = false;                // RMSNorm of each head's q and k, before RoPE
  bool qk_norm_after_rope = false;     // with qk_norm: after it
  bool qk_norm_whole = false;          // with qk_norm: of all heads of q, and of k, together
  bool qk_norm_weightless = false;     // with qk_norm: no weights; only in layers that rotate
  bool attention_bias = false;         // biases of q, k, v; latent attention: of down-projections
  bool attention_output_bias = false;  // bias of o
  bool attention_sinks = false;        // a learned logit per head in every softmax, without a value
  bool mlp_bias = false;               // biases of up, down and, in a gated MLP, gate
  // -1: none. Of a list in config.json only the first id below vocab_size; all stop token ids:
  // transformer/formats/stop_token_ids.h.
  int64_t bos_token_id = -1;
  int64_t eos_token_id = -1;
  // Sliding windows (Longformer, Beltagy et al. 2020; Mistral, Jiang et al. 2023): in layer l a
  // token attends to itself and the windows[l] - 1 tokens before it; 0: to all tokens before it.
  // Empty: no layer has a window.
  std::vector<int64_t> windows;
  // Tokens of a chunk. Documents are cut into chunks from their first token on; in layers with a 1
  // in chunked_layers a token attends only to itself and earlier tokens of its chunk (Llama 4). 0:
  // no such layers.
  int64_t attention_chunk = 0;
  std::vector<uint8_t> chunked_layers;
  // By layer, 1: rotary positions, 0: none (NoPE, Kazemnejad et al. 2023). Empty: all layers have
  // the model's positions.
  std::vector<uint8_t> rope_layers;
  MoeConfig moe;  // moe.experts == 0: dense model
  LatentConfig latent;
  // Multi-token prediction layers that published files have after the last layer; they are not run.
  int64_t extra_layers = 0;

  int64_t window(int64_t layer) const {
    return windows.empty() ? 0 : windows[static_cast<size_t>(layer)];
  }
  bool rotates(int64_t layer) const {
    return rope_layers.empty() || rope_layers[static_cast<size_t>(layer)] != 0;
  }
  bool has_windows() const { return !windows.empty(); }
  bool chunked(int64_t layer) const {
    return attention_chunk > 0 && chunked_layers[static_cast<size_t>(layer)] != 0;
  }
  bool operator==(const ModelConfig&) const = default;
};

// Elements of a head that the rotary embedding rotates: columns of the rotary table.
inline int64_t rotary_width(const ModelConfig& config) {
  if (config.latent.kv_rank > 0) return config.latent.rope_dim;
  return config.rotary_dim > 0 ? config.rotary_dim : config.head_dim;
}

// Number of rotary tables: 2 if layers with a window have their own frequencies, or if queries are
// scaled by position.
inline int64_t rotary_tables(const ModelConfig& config) {
  return config.local_rope_theta > 0 || config.query_scaling > 0 ? 2 : 1;
}

// Longest sequence that the model supports, in tokens: rows of its position table, or the length
// that its rotary scaling is meant for.
inline int64_t longest_sequence(const ModelConfig& config) {
  return longest_sequence(config.rope_scaling, config.max_positions);
}

// Number of tensor-parallel ranks that hold the same key/value head: above 1 if there are fewer
// heads than ranks.
inline int kv_head_copies(const ModelConfig& config, int tp) {
  return config.num_kv_heads >= tp ? 1 : tp / static_cast<int>(config.num_kv_heads);
}

}  // namespace trireme
