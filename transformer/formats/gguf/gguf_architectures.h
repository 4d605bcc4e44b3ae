// Table of the architectures in GGUF files, and of llama.cpp's metadata keys paired with
// HuggingFace's, for gguf_config.cpp (reading) and gguf_metadata.cpp (writing).
#pragma once

#include <span>

#include "transformer/config/model_config.h"

namespace trireme {

struct GgufKeyPair {
  const char* ours;    // in config.json
  const char* theirs;  // after "<architecture>."
  bool required = true;
};
inline constexpr GgufKeyPair kDecoderIntegers[] = {
    {"max_position_embeddings", "context_length"},
    {"hidden_size", "embedding_length"},
    {"num_hidden_layers", "block_count"},
    {"intermediate_size", "feed_forward_length"},
    {"num_attention_heads", "attention.head_count"},
    {"num_key_value_heads", "attention.head_count_kv", false},
    {"head_dim", "attention.key_length", false}};
inline constexpr GgufKeyPair kDecoderNumbers[] = {
    {"rms_norm_eps", "attention.layer_norm_rms_epsilon"}, {"rope_theta", "rope.freq_base", false}};
inline constexpr GgufKeyPair kGpt2Integers[] = {{"n_positions", "context_length"},
                                                {"n_embd", "embedding_length"},
                                                {"n_layer", "block_count"},
                                                {"n_inner", "feed_forward_length"},
                                                {"n_head", "attention.head_count"}};
inline constexpr GgufKeyPair kGpt2Numbers[] = {
    {"layer_norm_epsilon", "attention.layer_norm_epsilon"}};
inline constexpr GgufKeyPair kMixtralIntegers[] = {{"num_local_experts", "expert_count"},
                                                   {"num_experts_per_tok", "expert_used_count"}};
inline constexpr GgufKeyPair kQwenExpertIntegers[] = {{"num_experts", "expert_count"},
                                                      {"num_experts_per_tok", "expert_used_count"}};

// How layers get a sliding window.
enum class GgufWindows {
  kNone,
  kAll,             // one window for all layers, or none
  kSwitched,        // with "use_sliding_window"; by layer, by default all
  kSwitchedForAll,  // with "use_sliding_window"; all layers
  kPattern          // all but every n-th layer
};

// Mixture of experts.
struct GgufExperts {
  std::span<const GgufKeyPair> words;  // empty: dense models
  bool own_width = false;              // experts have a width of their own, "moe_intermediate_size"
  bool normalized = false;  // llama.cpp divides the weights of a token's experts by their sum
  bool shared = false;      // with own_width: every layer has a shared expert
};

// GGUF architecture of a family. Rows with the same `name` are distinguished by experts and window.
struct GgufArchitecture {
  const char* name;  // general.architecture
  ModelFamily family;
  bool gpt2_layout = false;     // q, k and v in one matrix; keys of kGpt2Integers and kGpt2Numbers
  bool adjacent_pairs = false;  // rows of q and k in the order for rotating adjacent pairs
  bool rope_factors = false;    // llama.cpp reads rope_freqs.weight, the divisors of frequencies
  const char* bias_key = nullptr;  // in config.json: whether q, k and v have biases
  GgufWindows windows = GgufWindows::kNone;
  GgufExperts experts = {};
  // Softmax scale of gemma_attention_scalar(), frequencies of windows by kGemmaLocalTheta.
  bool gemma_attention = false;
};
inline constexpr GgufArchitecture kGgufArchitectures[] = {
    {.name = "gpt2", .family = ModelFamily::kGpt2, .gpt2_layout = true},
    {.name = "llama",
     .family = ModelFamily::kLlama,
     .adjacent_pairs = true,
     .rope_factors = true,
     .bias_key = "attention_bias"},
    {.name = "llama",
     .family = ModelFamily::kMistral,
     .adjacent_pairs = true,
     .rope_factors = true,
     .windows = GgufWindows::kAll},
    {.name = "llama",
     .family = ModelFamily::kMixtral,
     .adjacent_pairs = true,
     .rope_factors = true,
     .windows = GgufWindows::kAll,
     .experts = {.words = kMixtralIntegers, .normalized = true}},
    {.name = "qwen2", .family = ModelFamily::kQwen2, .windows = GgufWindows::kSwitched},
    {.name = "qwen3", .family = ModelFamily::kQwen3, .windows = GgufWindows::kSwitched},
    {.name = "qwen2moe",
     .family = ModelFamily::kQwen2Moe,
     .bias_key = "qkv_bias",
     .windows = GgufWindows::kSwitched,
     .experts = {.words = kQwenExpertIntegers, .own_width = true, .shared = true}},
    {.name = "qwen3moe",
     .family = ModelFamily::kQwen3Moe,
     .bias_key = "attention_bias",
     .windows = GgufWindows::kSwitchedForAll,
     .experts = {.words = kQwenExpertIntegers, .own_width = true, .normalized = true}},
    {.name = "gemma3",
     .family = ModelFamily::kGemma3,
     .windows = GgufWindows::kPattern,
     .gemma_attention = true}};

// Returns nullptr for a family without a GGUF architecture.
constexpr const GgufArchitecture* gguf_architecture(ModelFamily family) {
  for (const GgufArchitecture& a : kGgufArchitectures)
    if (a.family == family) return &a;
  return nullptr;
}

// llama.cpp's defaults of absent Gemma 3 keys. Every kGemmaPattern-th layer has full attention;
// layers with a window have frequencies of base kGemmaLocalTheta.
inline constexpr int64_t kGemmaPattern = 6;
inline constexpr double kGemmaLocalTheta = 10000;
// Returns s of Gemma 3's softmax scale 1 / sqrt(s): head_dim, or hidden / heads in the largest
// model (27B), which is recognized by its layer count, 62.
constexpr int64_t gemma_attention_scalar(int64_t layers, int64_t hidden, int64_t heads,
                                         int64_t head_dim) {
  return layers == 62 ? hidden / heads : head_dim;
}

// Published parameters of Llama 3's scaling; rope_freqs.weight holds the divisor of each frequency.
inline constexpr double kLlama3Low = 1, kLlama3High = 4;
inline constexpr int64_t kLlama3Positions = 8192;

}  // namespace trireme
