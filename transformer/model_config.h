// The model's hyper-parameters, in HuggingFace `config.json` words.
//
// model_type "gpt2": LayerNorm, learned positions, GELU (tanh), biases; keys n_layer, n_head, n_embd, n_inner,
//   n_positions, layer_norm_epsilon, resid_pdrop, embd_pdrop, attn_pdrop.
// model_type "llama": RMSNorm, RoPE, grouped-query attention, SwiGLU; keys num_hidden_layers,
//   num_attention_heads, num_key_value_heads, hidden_size, intermediate_size, head_dim,
//   max_position_embeddings, rope_theta, rms_norm_eps, attention_bias, mlp_bias, attention_dropout.
// model_type "mixtral", "qwen2_moe", "deepseek": as llama, with experts (transformer/moe_config.h) in the
//   place of the MLP in all or some layers; "deepseek" is DeepSeek-MoE's block with the routing of
//   its later versions, but with grouped-query attention.
// Shared: vocab_size, tie_word_embeddings, initializer_range, bos_token_id, eos_token_id.
//
// Sizes must be given; other keys that are absent take HuggingFace's defaults (gpt2: dropout 0.1,
// tied head). Keys that say nothing about the mathematics are ignored; what would change it and is
// not built is an error, never ignored.
#pragma once

#include <cstdint>
#include <string>

#include "engine/config/reader.h"
#include "engine/config/schema.h"
#include "transformer/moe_config.h"

namespace trireme {

enum class ModelFamily { kGpt2, kLlama, kMixtral, kQwen2Moe, kDeepseek };
inline constexpr ModelFamily kModelFamilies[] = {ModelFamily::kGpt2, ModelFamily::kLlama,
                                                 ModelFamily::kMixtral, ModelFamily::kQwen2Moe,
                                                 ModelFamily::kDeepseek};
const char* model_type_name(ModelFamily family);  // "gpt2", ...

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
  double norm_eps = 1e-5;
  double initializer_range = 0.02;
  double residual_dropout = 0.0;
  double embedding_dropout = 0.0;
  double attention_dropout = 0.0;
  bool tie_word_embeddings = false;
  bool attention_bias = false;         // biases of q, k and v
  bool attention_output_bias = false;  // bias of o
  bool mlp_bias = false;               // biases of up, down and, where there is one, gate
  int64_t bos_token_id = -1;           // -1: none
  int64_t eos_token_id = -1;
  MoeConfig moe;  // moe.experts is 0 in a dense model
  bool operator==(const ModelConfig&) const = default;
};

// Tensor-parallel ranks that hold the same key/value head: more than 1 where there are fewer heads than
// ranks.
inline int kv_head_copies(const ModelConfig& config, int tp) {
  return config.num_kv_heads >= tp ? 1 : tp / static_cast<int>(config.num_kv_heads);
}

// Reads a config.json object; problems are added to `report` with their JSON paths under `path`.
ModelConfig read_model_config(const Json& json, const std::string& path, ConfigReport& report);
// The config.json of a file, or of a HuggingFace directory. Throws InputError with all problems.
ModelConfig load_model_config(const std::string& path);
// The object read_model_config() reads back to the same value; what a checkpoint stores.
Json model_config_to_json(const ModelConfig& config);

// The keys of a family, from which the checks, the JSON Schema and the reference page are made.
const Schema& model_schema(ModelFamily family);
// `path` itself, or the config.json in it when it is a directory. Throws InputError when absent.
std::string model_config_file(const std::string& path);

}  // namespace trireme
