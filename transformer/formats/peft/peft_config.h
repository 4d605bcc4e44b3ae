// PEFT's adapter_config.json as values: which layers have adapters, and of which rank and factor.
//
// Layers are named as in HuggingFace's files ("model.layers.0.self_attn.q_proj"). The rules are
// PEFT's check_target_module_exists() and get_pattern_key(); its expressions are compiled once.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/text/regex.h"
#include "transformer/layers/lora.h"

namespace trireme {

// Names, the ends of names behind a dot, or an expression of whole names.
class LayerNames {
 public:
  LayerNames() = default;
  // InputError, which begins with `what`, for any other value than null, a text or texts.
  LayerNames(const nlohmann::ordered_json& value, const std::string& what);
  bool empty() const { return names_.empty() && !pattern_.has_value(); }
  bool is_pattern() const { return pattern_.has_value(); }
  const std::vector<std::string>& names() const { return names_; }
  bool contains(const std::string& layer) const;  // the whole name, or the expression
  bool matches(const std::string& layer) const;   // or an end
  std::string text() const;                       // for messages

 private:
  std::vector<std::string> names_;
  std::optional<Regex> pattern_;
};

class PeftConfig {
 public:
  // InputError for what is wrong with the file, and for adapters that are not computed here
  // (peft_keys.h).
  explicit PeftConfig(const std::string& file);
  // Rank, factor and targets of layers that no pattern names.
  const LoraConfig& lora() const { return lora_; }
  bool targets(const std::string& layer) const;
  // A tensor of the base, by HuggingFace's name, in whose place the adapter may have one
  // (modules_to_save, bias), or must.
  bool may_replace(const std::string& tensor) const;
  bool must_replace(const std::string& tensor) const;
  // ensure_weight_tying: of a model whose head is its embedding both are changed alike.
  bool ties() const { return ties_; }
  int64_t rank(const std::string& layer) const;
  double scale(const std::string& layer) const;
  // More than lora().targets says which layers have adapters.
  bool selects() const { return selects_; }
  bool has_patterns() const { return !ranks_.empty() || !alphas_.empty(); }
  // The patterns are those of GPT-2's c_attn as three adapters are written (peft_adapter.h).
  bool has_fused_patterns() const;
  std::string targets_text() const { return targets_.text(); }

 private:
  struct Pattern {
    std::string source;
    Regex regex;
    double value;
  };
  static std::vector<Pattern> read_patterns(const nlohmann::ordered_json& value,
                                            const std::string& what);
  static const Pattern* find(const std::vector<Pattern>& patterns, const std::string& layer);
  void read_layers(const nlohmann::ordered_json& config, const std::string& file);
  void read_replaced(const nlohmann::ordered_json& config, const std::string& file);
  bool transforms(const std::string& layer) const;
  LoraConfig lora_;
  LayerNames targets_, excluded_;
  bool all_linear_ = false, selects_ = false, ties_ = false;
  std::vector<int64_t> layers_;  // layers_to_transform
  std::vector<Regex> lists_;     // layers_pattern: a name up to the number of its layer
  std::vector<Pattern> ranks_, alphas_;
  std::string bias_ = "none";
  std::vector<std::string> saved_modules_;
};

// Three times the rank's alpha, with which the factor stays as it was.
double fused_alpha(const LoraConfig& lora);

}  // namespace trireme
