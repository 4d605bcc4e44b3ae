// gguf_metadata() of gguf_model.h: conversion of HuggingFace's config.json to GGUF metadata.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <span>

#include "transformer/families/config_json.h"
#include "transformer/families/family.h"
#include "transformer/formats/gguf/gguf_architectures.h"
#include "transformer/formats/gguf/gguf_model.h"

namespace trireme {
namespace {

// Configuration keys without a counterpart in the metadata: no effect on inference, or implied by
// the tensors.
const std::set<std::string>& understood() {
  static const std::set<std::string> keys = {
      "model_type",        "architectures",  "initializer_range", "tie_word_embeddings",
      "bos_token_id",      "eos_token_id",   "hidden_act",        "activation_function",
      "attention_dropout", "attention_bias", "qkv_bias",          "resid_pdrop",
      "embd_pdrop",        "attn_pdrop",     "vocab_size",        "output_router_logits",
      "hidden_activation"};
  return keys;
}

bool says_nothing(const Json& value) {
  return value.is_null() || value == false || value == 0 || (value.is_object() && value.empty()) ||
         (value.is_array() && value.empty());
}

const GgufArchitecture& architecture_of(const ModelConfig& config) {
  if (const GgufArchitecture* found = gguf_architecture(config.family)) return *found;
  std::string known;
  for (const GgufArchitecture& a : kGgufArchitectures)
    known += concat(known.empty() ? "" : ", ", family_of(a.family).model_type);
  fail_input("models of model_type \"", family_of(config.family).model_type,
             "\" cannot be written as GGUF; supported: ", known, " models");
}

class Writer {
 public:
  explicit Writer(const ModelConfig& config)
      : config_(config),
        json_(model_config_to_json(config)),
        row_(architecture_of(config)),
        arch_(row_.name),
        said_(understood()) {}

  GgufMetadata write() {
    out_ = {{"general.architecture", arch_},
            {"general.quantization_version", int64_t{2}},
            {key("vocab_size"), config_.vocab_size}};
    if (row_.gpt2_layout) {
      words(kGpt2Integers);
      words(kGpt2Numbers);
    } else {
      words(kDecoderIntegers);
      words(kDecoderNumbers);
      out_[key("attention.key_length")] = config_.head_dim;
      out_[key("attention.value_length")] = config_.head_dim;
      out_[key("rope.dimension_count")] = config_.head_dim;
      out_[key("rope.freq_base")] = config_.rope_theta;
      out_[key("attention.layer_norm_rms_epsilon")] = config_.norm_eps;
      add_scaling();
      add_windows();
      add_experts();
      if (row_.gemma_attention) add_gemma();
    }
    for (const auto& [key, value] : json_.items())
      if (!said_.contains(key) && !key.starts_with("router_") && !says_nothing(value))
        fail_said(key);
    return std::move(out_);
  }

 private:
  std::string key(const char* word) const { return concat(arch_, ".", word); }
  [[noreturn]] void fail_said(const std::string& key) const {
    fail_input("the model has ", key, " ", json_.at(key).dump().substr(0, 80),
               ", which this version does not write as GGUF");
  }

  void words(std::span<const GgufKeyPair> table) {
    for (const GgufKeyPair& word : table) {
      if (!json_.contains(word.ours)) continue;
      said_.insert(word.ours);
      const Json& value = json_.at(word.ours);
      if (value.is_null()) continue;
      out_[key(word.theirs)] = value.is_number_float() ? GgufValue(value.get<double>())
                                                       : GgufValue(value.get<int64_t>());
    }
  }

  void add_scaling() {
    const RopeScaling& s = config_.rope_scaling;
    RopeScaling plain{.type = s.type, .factor = s.factor};  // what the metadata can express
    switch (s.type) {
      case RopeType::kDefault: return;
      case RopeType::kLinear: out_[key("rope.scaling.type")] = std::string("linear"); break;
      case RopeType::kYarn:
        out_[key("rope.scaling.type")] = std::string("yarn");
        out_[key("rope.scaling.yarn_beta_fast")] = plain.beta_fast = s.beta_fast;
        out_[key("rope.scaling.yarn_beta_slow")] = plain.beta_slow = s.beta_slow;
        break;
      case RopeType::kLlama3:  // rope_freqs.weight
        plain.low_frequency_factor = kLlama3Low;
        plain.high_frequency_factor = kLlama3High;
        break;
      case RopeType::kDynamic:
      case RopeType::kLongRope: fail_said("rope_scaling");
    }
    plain.original_positions = s.original_positions;
    if (s.type != RopeType::kLinear) {
      // For llama3 only Trireme reads it.
      out_[key("rope.scaling.original_context_length")] = s.original_positions;
    }
    const bool factors_read = s.type != RopeType::kLlama3 || row_.rope_factors;
    if (!(plain == s) || !factors_read) fail_said("rope_scaling");
    if (s.type != RopeType::kLlama3) out_[key("rope.scaling.factor")] = s.factor;
    said_.insert("rope_scaling");
  }

  void add_windows() {
    said_.insert({"sliding_window", "use_sliding_window", "layer_types"});
    if (!config_.has_windows()) return;
    const int64_t window = std::ranges::max(config_.windows);
    out_[key("attention.sliding_window")] = window;
    std::vector<int64_t> sliding;
    for (const int64_t w : config_.windows) {
      if (w != 0 && w != window) fail_said("sliding_window");
      sliding.push_back(w != 0);
    }
    const bool periodic = row_.windows == GgufWindows::kPattern;
    if (const int64_t period = period_of(sliding); periodic && period > 0) {
      if (period != kGemmaPattern) out_[key("attention.sliding_window_pattern")] = period;
    } else if (periodic) {
      fail_said("layer_types");
    } else if (std::ranges::find(sliding, 0) != sliding.end()) {
      out_[key("attention.sliding_window_pattern")] = sliding;
    }
  }
  // Period n where exactly the layers n - 1, 2 n - 1, ... have full attention; 6 if it is one of
  // several. 0: no period.
  static int64_t period_of(const std::vector<int64_t>& sliding) {
    const auto fits = [&](int64_t n) {
      for (int64_t l = 0; l < std::ssize(sliding); ++l)
        if (((l + 1) % n != 0) != (sliding[static_cast<size_t>(l)] != 0)) return false;
      return true;
    };
    if (fits(kGemmaPattern)) return kGemmaPattern;
    for (int64_t n = 1; n <= std::ssize(sliding) + 1; ++n)
      if (fits(n)) return n;
    return 0;
  }

  void add_experts() {
    const GgufExperts& experts = row_.experts;
    words(experts.words);
    if (!experts.own_width) return;
    // llama.cpp computes these families with experts in every layer and with fixed normalization.
    if (config_.moe.sparse_step != 1) fail_said("decoder_sparse_step");
    if (config_.moe.normalize_weights != experts.normalized) fail_said("norm_topk_prob");
    if (experts.shared && config_.moe.shared_intermediate_size == 0)
      fail_said("shared_expert_intermediate_size");
    out_[key("expert_feed_forward_length")] = config_.moe.intermediate_size;
    if (experts.shared)
      out_[key("expert_shared_feed_forward_length")] = config_.moe.shared_intermediate_size;
    said_.insert({"moe_intermediate_size", "norm_topk_prob", "decoder_sparse_step",
                  "shared_expert_intermediate_size"});
  }

  void add_gemma() {
    const int64_t scalar = gemma_attention_scalar(config_.num_layers, config_.hidden_size,
                                                  config_.num_heads, config_.head_dim);
    if (json_.at("query_pre_attn_scalar") != scalar) fail_said("query_pre_attn_scalar");
    if (config_.local_rope_theta > 0) out_[key("rope.freq_base_swa")] = config_.local_rope_theta;
    said_.insert({"query_pre_attn_scalar", "rope_local_base_freq"});
  }

  const ModelConfig& config_;
  Json json_;
  const GgufArchitecture& row_;
  const char* arch_;
  std::set<std::string> said_;
  GgufMetadata out_;
};

}  // namespace

GgufMetadata gguf_metadata(const ModelConfig& config) { return Writer(config).write(); }

}  // namespace trireme
