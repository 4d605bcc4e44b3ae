// The model's hyper-parameters: what HuggingFace's config.json says, in one form for all families.
//
// The layers ask the properties here (which norm, which positions, which MLP), never the family;
// that says only how config.json spells them and what the parameters are called
// (transformer/families).
//
// Sizes must be given; other keys that are absent take HuggingFace's defaults (gpt2: dropout 0.1,
// tied head). Keys that say nothing about the mathematics are ignored; what would change it and is
// not built is an error, never ignored.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

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
  kGemma3
};

// Multi-head latent attention (transformer/layers/latent_attention.h). Heads have D = nope_dim +
// rope_dim.
struct LatentConfig {
  int64_t q_rank = 0;     // Rq; 0: queries come from the residual stream
  int64_t kv_rank = 0;    // Rkv; 0: the model has other attention
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
  // Of layers with a window, whose frequencies are not scaled; 0: as the others.
  double local_rope_theta = 0;
  bool rope_interleaved = false;  // pairs of neighbours rotate (engine/ops/rotary.h)
  double attention_scale = 0;     // of the softmax; 0: 1 / sqrt(D)
  double norm_eps = 1e-5;
  double initializer_range = 0.02;
  double residual_dropout = 0.0;
  double embedding_dropout = 0.0;
  double attention_dropout = 0.0;
  bool layer_norm = false;         // LayerNorm, with biases; else RMSNorm
  bool learned_positions = false;  // a table of P rows, added to the embedding; else rotary
  bool gated_mlp = true;           // down(silu(gate x) * up x); else down(gelu_tanh(up x))
  bool gelu_gate = false;          // of a gated MLP: gelu_tanh in the place of silu
  bool unit_norms = false;         // RMSNorm multiplies with 1 + w
  bool branch_norms = false;       // another norm behind attention and MLP, before they are added
  double embedding_scale = 1;      // factor of the token embedding, rounded to its type
  bool tie_word_embeddings = false;
  bool qk_norm = false;                // RMSNorm of each head's q and k, before rotary positions
  bool attention_bias = false;         // biases of q, k and v
  bool attention_output_bias = false;  // bias of o
  bool mlp_bias = false;               // biases of up, down and, where there is one, gate
  int64_t bos_token_id = -1;           // -1: none
  int64_t eos_token_id = -1;
  // Sliding windows (Longformer, Beltagy et al. 2020; Mistral, Jiang et al. 2023): in layer l a
  // token sees itself and the windows[l] - 1 tokens before it; 0: all before it. Empty where no
  // layer has one.
  std::vector<int64_t> windows;
  MoeConfig moe;  // moe.experts is 0 in a dense model
  LatentConfig latent;
  // Layers behind the last of published files, which predict tokens after the next; they are left
  // out.
  int64_t extra_layers = 0;

  int64_t window(int64_t layer) const {
    return windows.empty() ? 0 : windows[static_cast<size_t>(layer)];
  }
  bool has_windows() const { return !windows.empty(); }
  bool operator==(const ModelConfig&) const = default;
};

// Elements of a head that positions rotate: columns of the rotary table.
inline int64_t rotary_width(const ModelConfig& config) {
  return config.latent.kv_rank > 0 ? config.latent.rope_dim : config.head_dim;
}

// Of frequencies: another one where layers with a window have their own.
inline int64_t rotary_tables(const ModelConfig& config) {
  return config.local_rope_theta > 0 ? 2 : 1;
}

// The longest sequence the model may see: rows of its position table, or what its rotary scaling is
// made for.
inline int64_t longest_sequence(const ModelConfig& config) {
  return longest_sequence(config.rope_scaling, config.max_positions);
}

// Tensor-parallel ranks that hold the same key/value head: more than 1 where there are fewer heads
// than ranks.
inline int kv_head_copies(const ModelConfig& config, int tp) {
  return config.num_kv_heads >= tp ? 1 : tp / static_cast<int>(config.num_kv_heads);
}

}  // namespace trireme
