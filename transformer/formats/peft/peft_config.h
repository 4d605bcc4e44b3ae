// Parsed adapter_config.json of PEFT: the layers with adapters, and their ranks and scales.
//
// Layers are named as in HuggingFace's files ("model.layers.0.self_attn.q_proj"). The matching
// rules are those of PEFT's check_target_module_exists() and get_pattern_key(); regular expressions
// are compiled once.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/text/regex.h"
#include "transformer/layers/lora.h"

namespace trireme {

// Set of layer names: a list of full names or of suffixes that begin after a dot, or a regular
// expression for full names.
class LayerNames {
 public:
  LayerNames() = default;
  // InputError, prefixed with `what`, for any value but null, a string or a list of strings.
  LayerNames(const nlohmann::ordered_json& value, const std::string& what);
  bool empty() const { return names_.empty() && !pattern_.has_value(); }
  bool is_pattern() const { return pattern_.has_value(); }
  // The list, or only the text of the regular expression.
  const std::vector<std::string>& names() const { return names_; }
  // Returns whether a listed full name or the regular expression matches.
  bool contains(const std::string& layer) const;
  bool matches(const std::string& layer) const;  // likewise, or a listed suffix
  std::string text() const;                      // first name, or the pattern; for messages

 private:
  std::vector<std::string> names_;
  std::optional<Regex> pattern_;
};

class PeftConfig {
 public:
  // InputError for an invalid file, and for adapters that are not supported (peft_keys.h).
  explicit PeftConfig(const std::string& file);
  // Rank, scale and targets of layers that no pattern matches.
  const LoraConfig& lora() const { return lora_; }
  bool targets(const std::string& layer) const;  // whether the layer has adapters
  // Returns whether the adapter may hold a replacement of a base tensor, given by HuggingFace's
  // name: a tensor selected by modules_to_save or bias, or the table of the embedding or the head.
  bool may_replace(const std::string& tensor) const;
  // Returns whether the adapter must hold it: modules_to_save selects it.
  bool must_replace(const std::string& tensor) const;
  // ensure_weight_tying: PEFT changes a tied embedding and head equally.
  bool ties() const { return ties_; }
  // Rank r of a layer, and its scale: alpha / r, or alpha / sqrt(r) if rank-stabilized.
  int64_t rank(const std::string& layer) const;
  double scale(const std::string& layer) const;
  // Returns whether keys other than lora().targets select the layers with adapters.
  bool selects() const { return selects_; }
  bool has_patterns() const { return !ranks_.empty() || !alphas_.empty(); }
  // Returns whether rank_pattern and alpha_pattern are those that write_peft_adapter() writes for
  // the joined adapters of query, key and value in GPT-2's c_attn (peft_adapter.h).
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
  std::vector<Regex> lists_;     // layers_pattern: match a name up to the layer number
  std::vector<Pattern> ranks_, alphas_;
  std::string bias_ = "none";
  std::vector<std::string> saved_modules_;
};

// Alpha of the joined adapter of rank 3 r: that of `lora` times 3, or sqrt(3) if rank-stabilized,
// so that the scale is unchanged.
double fused_alpha(const LoraConfig& lora);

}  // namespace trireme
