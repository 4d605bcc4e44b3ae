// gguf_config() of gguf_model.h: conversion of GGUF metadata to HuggingFace's config.json.
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "engine/text/tokenizer_keys.h"
#include "transformer/families/family.h"
#include "transformer/formats/gguf/gguf_architectures.h"
#include "transformer/formats/gguf/gguf_keys.h"
#include "transformer/formats/gguf/gguf_model.h"

namespace trireme {
namespace {

// The decimal number that a float32 was written for: 1e-05, not 9.999999747378752e-06.
double meant(double value) {
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), static_cast<float>(value)).ptr;
  double out = value;
  std::from_chars(buffer, end, out);
  return out;
}

class Reader {
 public:
  explicit Reader(const GgufFile& file) : file_(file) {
    arch_ = require<std::string>("general.architecture");
    row_ = &architecture();
    check_gguf_keys(file_, arch_);
  }

  Json read() {
    json_["model_type"] = family_of(row_->family).model_type;
    if (row_->gpt2_layout) {
      words(kGpt2Integers, kGpt2Numbers);
    } else {
      words(kDecoderIntegers, kDecoderNumbers);
      read_heads();
      read_scaling();
      read_windows();
      read_experts();
      if (row_->gemma_attention) read_gemma();
      if (row_->bias_key != nullptr)
        json_[row_->bias_key] = file_.find("blk.0.attn_q.bias") != nullptr;
    }
    json_["vocab_size"] = tensor("token_embd.weight").shape.front();
    json_["tie_word_embeddings"] = file_.find("output.weight") == nullptr;
    for (const char* token : {"bos", "eos"}) {
      const auto id = file_.get<int64_t>(concat("tokenizer.ggml.", token, "_token_id"));
      json_[concat(token, "_token_id")] = id.has_value() ? Json(*id) : Json();
    }
    if (const auto bos = file_.get<int64_t>(kGgufModelBos)) json_["bos_token_id"] = *bos;
    return json_;
  }

 private:
  template <class T>
  T require(const std::string& key) const {
    if (const auto value = file_.get<T>(key)) return *value;
    fail_input(file_.path(), ": has no \"", key, "\"");
  }
  std::string key(const char* word) const { return concat(arch_, ".", word); }
  template <class T>
  std::optional<T> get(const char* word) const {
    return file_.get<T>(key(word));
  }
  // Files store whole numbers as integers or as floats.
  std::optional<double> number(const char* word) const {
    const auto found = file_.metadata().find(key(word));
    if (found == file_.metadata().end()) return {};
    if (const auto* whole = std::get_if<int64_t>(&found->second))
      return static_cast<double>(*whole);
    return file_.get<double>(found->first);
  }
  const SourceTensor& tensor(const std::string& name) const {
    if (const SourceTensor* found = file_.find(name)) return *found;
    fail_input(file_.path(), ": has no tensor ", name);
  }

  // The row with the file's name that best fits its experts, then its window.
  const GgufArchitecture& architecture() const {
    const bool experts = get<int64_t>("expert_count").value_or(0) > 0;
    const bool window = get<int64_t>("attention.sliding_window").value_or(0) > 0;
    const GgufArchitecture* best = nullptr;
    int best_fit = -1;
    for (const GgufArchitecture& a : kGgufArchitectures) {
      if (arch_ != a.name) continue;
      const int fit = 2 * static_cast<int>(experts == !a.experts.words.empty()) +
                      static_cast<int>(window == (a.windows != GgufWindows::kNone));
      if (fit > best_fit) {
        best = &a;
        best_fit = fit;
      }
    }
    if (best != nullptr) return *best;
    std::string known;
    for (const GgufArchitecture& a : kGgufArchitectures)
      if (known.find(a.name) == std::string::npos)
        known += concat(known.empty() ? "" : ", ", a.name);
    fail_input(file_.path(), ": models of architecture \"", arch_,
               "\" cannot be read from GGUF; supported: ", known, " models");
  }

  void add_integer(const GgufKeyPair& word) {
    if (word.required)
      json_[word.ours] = require<int64_t>(key(word.theirs));
    else if (const auto value = get<int64_t>(word.theirs))
      json_[word.ours] = *value;
  }
  template <size_t n, size_t m>
  void words(const GgufKeyPair (&integers)[n], const GgufKeyPair (&numbers)[m]) {
    for (const GgufKeyPair& word : integers) add_integer(word);
    for (const GgufKeyPair& word : numbers)
      if (const auto value = get<double>(word.theirs))
        json_[word.ours] = meant(*value);
      else if (word.required)
        require<double>(key(word.theirs));
  }

  // Checks the head widths: widths that differ between q, k, v and the rotary part are not
  // supported.
  void read_heads() {
    const auto heads = json_["num_attention_heads"].get<int64_t>();
    if (heads < 1)
      fail_input(file_.path(), ": ", key("attention.head_count"), ": expected at least 1, got ",
                 heads);
    if (!json_.contains("head_dim"))
      json_["head_dim"] = json_["hidden_size"].get<int64_t>() / heads;
    for (const char* word : {"attention.value_length", "rope.dimension_count"})
      if (const auto width = get<int64_t>(word); width.has_value() && json_["head_dim"] != *width)
        fail_input(file_.path(), ": ", key(word), " is ", *width, ", expected the head width, ",
                   json_["head_dim"].get<int64_t>(), " elements");
  }

  void read_scaling() {
    // As in llama.cpp: the default type is linear, and a factor of 0 means no scaling.
    const std::string type = get<std::string>("rope.scaling.type").value_or("linear");
    const auto factor = number("rope.scaling.factor");
    const double scale = factor.has_value() ? *factor : number("rope.scale_linear").value_or(0);
    const bool scaled = type == "yarn" || (type == "linear" && scale != 0 && scale != 1);
    if (scaled) {
      Json scaling = {{"rope_type", type}, {"factor", meant(scale)}};
      if (type == "yarn") read_yarn(scaling);
      json_["rope_scaling"] = scaling;
    }
    const SourceTensor* const factors = file_.find("rope_freqs.weight");
    if (factors != nullptr && scaled)
      fail_input(file_.path(), ": has rope_freqs.weight and rope.scaling of type ", type,
                 "; both together are not supported");
    if (factors != nullptr) read_factors(*factors);
  }

  void read_yarn(Json& scaling) {
    if (const auto length = get<int64_t>("rope.scaling.original_context_length"))
      scaling["original_max_position_embeddings"] = *length;
    for (const auto& [ours, theirs] : {std::pair{"beta_fast", "rope.scaling.yarn_beta_fast"},
                                       {"beta_slow", "rope.scaling.yarn_beta_slow"}})
      if (const auto value = get<double>(theirs)) scaling[ours] = meant(*value);
  }

  // Recognizes Llama 3's scaling: the divisors that it implies must equal those in the file.
  void read_factors(const SourceTensor& tensor) {
    const auto width = json_["head_dim"].get<int64_t>();
    const double theta = json_.value("rope_theta", 10000.0);
    if (!(theta > 0))
      fail_input(file_.path(), ": ", key("rope.freq_base"), ": expected a number above 0, got ",
                 theta);
    if (width < 2 || 2 * tensor.numel() != width)
      fail_input(file_.path(), ": ", tensor.name, " holds ", tensor.numel(),
                 " factors for heads of ", width, " elements");
    std::vector<double> found(static_cast<size_t>(tensor.numel()));
    file_.read(tensor, 0, Tensor(found.data(), DType::kF64, Shape{tensor.numel()}));
    RopeScaling scaling{
        .type = RopeType::kLlama3,
        .original_positions =
            get<int64_t>("rope.scaling.original_context_length").value_or(kLlama3Positions),
        .low_frequency_factor = kLlama3Low,
        .high_frequency_factor = kLlama3High};
    for (const double f : found) scaling.factor = std::max(scaling.factor, f);
    scaling.factor = meant(scaling.factor);
    const std::vector<double> expected = gguf_rope_factors(theta, width, scaling);
    for (size_t i = 0; i < found.size(); ++i)
      if (!(std::abs(found[i] - expected[i]) <= 1e-4 * expected[i]))
        fail_input(file_.path(),
                   ": rope_freqs.weight does not hold the factors of Llama 3's scaling; ",
                   "use the HuggingFace directory of this model");
    json_["rope_scaling"] = {{"rope_type", "llama3"},
                             {"factor", scaling.factor},
                             {"low_freq_factor", kLlama3Low},
                             {"high_freq_factor", kLlama3High},
                             {"original_max_position_embeddings", scaling.original_positions}};
  }

  void read_windows() {
    const int64_t window = get<int64_t>("attention.sliding_window").value_or(0);
    const GgufWindows windows = row_->windows;
    const bool switched =
        windows == GgufWindows::kSwitched || windows == GgufWindows::kSwitchedForAll;
    if (windows == GgufWindows::kNone || (switched && window == 0)) return;
    json_["sliding_window"] = window > 0 ? Json(window) : Json();
    if (switched) json_["use_sliding_window"] = true;
    const auto found = file_.metadata().find(key("attention.sliding_window_pattern"));
    if (found == file_.metadata().end()) {
      if (windows == GgufWindows::kPattern) json_["sliding_window_pattern"] = kGemmaPattern;
      if (windows == GgufWindows::kSwitched) json_["layer_types"] = layer_types({});
    } else if (const auto* period = std::get_if<int64_t>(&found->second)) {
      json_["sliding_window_pattern"] = *period;
    } else {
      json_["layer_types"] = layer_types(
          file_.get<std::vector<int64_t>>(found->first).value_or(std::vector<int64_t>()));
    }
  }

  // sliding: one flag per layer; empty: all layers have the window.
  Json layer_types(const std::vector<int64_t>& sliding) const {
    const auto layers = json_["num_hidden_layers"].get<int64_t>();
    if ((!sliding.empty() && std::ssize(sliding) != layers) || layers > (1 << 16))
      fail_input(file_.path(), ": ", key("attention.sliding_window_pattern"), " has ",
                 sliding.size(), " entries for ", layers, " layers");
    Json types = Json::array();
    for (int64_t l = 0; l < layers; ++l) {
      const bool has = sliding.empty() || sliding[static_cast<size_t>(l)] != 0;
      types.push_back(has ? "sliding_attention" : "full_attention");
    }
    return types;
  }

  void read_experts() {
    const GgufExperts& experts = row_->experts;
    for (const GgufKeyPair& word : experts.words) add_integer(word);
    if (!experts.own_width) return;
    json_["moe_intermediate_size"] = width("blk.0.ffn_gate_exps.weight");
    json_["norm_topk_prob"] = experts.normalized;
    if (experts.shared)
      json_["shared_expert_intermediate_size"] = width("blk.0.ffn_gate_shexp.weight");
  }
  // Rows of a matrix, or of each matrix in a stack.
  int64_t width(const std::string& name) const {
    const std::vector<int64_t>& shape = tensor(name).shape;
    return shape.size() < 2 ? 0 : shape[shape.size() - 2];
  }

  void read_gemma() {
    json_["rope_local_base_freq"] =
        meant(get<double>("rope.freq_base_swa").value_or(kGemmaLocalTheta));
    json_["query_pre_attn_scalar"] = gemma_attention_scalar(
        json_["num_hidden_layers"].get<int64_t>(), json_["hidden_size"].get<int64_t>(),
        json_["num_attention_heads"].get<int64_t>(), json_["head_dim"].get<int64_t>());
  }

  const GgufFile& file_;
  std::string arch_;
  const GgufArchitecture* row_ = nullptr;
  Json json_;
};

}  // namespace

Json gguf_config(const GgufFile& file) { return Reader(file).read(); }

std::vector<double> gguf_rope_factors(double theta, int64_t width, const RopeScaling& scaling) {
  const std::vector<double> plain = rotary_frequencies(theta, width, {}, 1, 0).inverse,
                            scaled = rotary_frequencies(theta, width, scaling, 1, 0).inverse;
  std::vector<double> factors(plain.size());
  for (size_t i = 0; i < factors.size(); ++i) factors[i] = plain[i] / scaled[i];
  return factors;
}

}  // namespace trireme
