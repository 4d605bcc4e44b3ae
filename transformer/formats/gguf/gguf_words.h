// llama.cpp's metadata keys paired with HuggingFace's, for gguf_config.cpp (reading) and
// gguf_metadata.cpp (writing).
#pragma once

#include "transformer/config/model_config.h"

namespace trireme {

struct GgufArchitecture {
  const char* name;  // general.architecture
  ModelFamily family;
};
// Several families may share a name; the first one is the plain model.
inline constexpr GgufArchitecture kGgufArchitectures[] = {
    {"gpt2", ModelFamily::kGpt2},         {"llama", ModelFamily::kLlama},
    {"llama", ModelFamily::kMistral},     {"llama", ModelFamily::kMixtral},
    {"qwen2", ModelFamily::kQwen2},       {"qwen3", ModelFamily::kQwen3},
    {"qwen2moe", ModelFamily::kQwen2Moe}, {"qwen3moe", ModelFamily::kQwen3Moe},
    {"gemma3", ModelFamily::kGemma3}};

struct GgufWord {
  const char* ours;    // in config.json
  const char* theirs;  // after "<architecture>."
  bool required = true;
};
inline constexpr GgufWord kDecoderIntegers[] = {
    {"max_position_embeddings", "context_length"},
    {"hidden_size", "embedding_length"},
    {"num_hidden_layers", "block_count"},
    {"intermediate_size", "feed_forward_length"},
    {"num_attention_heads", "attention.head_count"},
    {"num_key_value_heads", "attention.head_count_kv", false},
    {"head_dim", "attention.key_length", false}};
inline constexpr GgufWord kDecoderNumbers[] = {{"rms_norm_eps", "attention.layer_norm_rms_epsilon"},
                                               {"rope_theta", "rope.freq_base", false}};
inline constexpr GgufWord kGpt2Integers[] = {{"n_positions", "context_length"},
                                             {"n_embd", "embedding_length"},
                                             {"n_layer", "block_count"},
                                             {"n_inner", "feed_forward_length"},
                                             {"n_head", "attention.head_count"}};
inline constexpr GgufWord kGpt2Numbers[] = {{"layer_norm_epsilon", "attention.layer_norm_epsilon"}};
inline constexpr GgufWord kMixtralIntegers[] = {{"num_local_experts", "expert_count"},
                                                {"num_experts_per_tok", "expert_used_count"}};
inline constexpr GgufWord kQwenExpertIntegers[] = {{"num_experts", "expert_count"},
                                                   {"num_experts_per_tok", "expert_used_count"}};

// Gemma 3 in llama.cpp: defaults where the file has no such key. Every kGemmaPattern-th layer has
// full attention; layers with a window have frequencies of base kGemmaLocalTheta.
inline constexpr int64_t kGemmaPattern = 6;
inline constexpr double kGemmaLocalTheta = 10000;
// The softmax scale is 1 / sqrt(head_dim); in the largest model, recognised by its layer count, 1 /
// sqrt(hidden_size / heads).
constexpr int64_t gemma_attention_scalar(int64_t layers, int64_t hidden, int64_t heads,
                                         int64_t head_dim) {
  return layers == 62 ? hidden / heads : head_dim;
}

// Published parameters of Llama 3's scaling; rope_freqs.weight holds the divisor of each frequency.
inline constexpr double kLlama3Low = 1, kLlama3High = 4;
inline constexpr int64_t kLlama3Positions = 8192;

}  // namespace trireme
