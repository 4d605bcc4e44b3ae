#include "transformer/formats/peft/peft_config.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "engine/config/json.h"
#include "engine/config/parse.h"
#include "engine/core/error.h"
#include "engine/io/atomic_file.h"
#include "engine/io/strict_json.h"
#include "transformer/formats/note_once.h"
#include "transformer/formats/peft/peft_keys.h"

namespace trireme {
namespace {

constexpr int64_t kMaxRank = 65536;  // like finetune.lora.rank
constexpr const char* kFusedLayer = "c_attn";

bool is_given(const Json& json) {
  return !json.is_null() && !(json.is_structured() && json.empty()) && json != "";
}

bool holds(const Regex& regex, const std::string& text) {
  Regex::Match match;
  return regex.find(text, 0, match);
}

int64_t rank_of(const Json& value, const std::string& what) {
  if (!value.is_number_integer() || value < 1 || value > kMaxRank)
    fail_input(what, " is ", value.dump().substr(0, 50), "; expected a whole number from 1 to ",
               kMaxRank);
  return value.get<int64_t>();
}

double alpha_of(const Json& value, const std::string& what) {
  if (!value.is_number() || !std::isfinite(value.get<double>()))
    fail_input(what, " is ", value.dump().substr(0, 50), "; expected a number");
  return value.get<double>();
}

// Number at `begin`, followed by a dot.
int64_t number_at(const std::string& name, size_t begin) {
  int64_t number = -1;
  std::from_chars(name.data() + begin, name.data() + name.size(), number);
  return number;
}

}  // namespace

LayerNames::LayerNames(const Json& value, const std::string& what) {
  if (!is_given(value)) return;
  if (value.is_string()) {
    pattern_.emplace(concat("^(?:", value.get<std::string>(), ")$"), what);
    names_ = {value.get<std::string>()};
    return;
  }
  if (!value.is_array() || !std::ranges::all_of(value, [](const Json& v) { return v.is_string(); }))
    fail_input(what, " must be a list of names or a regular expression");
  for (const Json& name : value) names_.push_back(name.get<std::string>());
}

bool LayerNames::contains(const std::string& layer) const {
  if (pattern_.has_value()) return holds(*pattern_, layer);
  return std::ranges::find(names_, layer) != names_.end();
}

bool LayerNames::matches(const std::string& layer) const {
  return contains(layer) ||
         (!pattern_.has_value() && std::ranges::any_of(names_, [&](const std::string& name) {
           return layer.size() > name.size() && layer.ends_with(name) &&
                  layer[layer.size() - name.size() - 1] == '.';
         }));
}

std::string LayerNames::text() const { return names_.empty() ? "" : names_.front(); }

double fused_alpha(const LoraConfig& lora) {
  return lora.alpha * (lora.rank_stabilized ? std::sqrt(3.0) : 3.0);
}

PeftConfig::PeftConfig(const std::string& file) {
  const Json json = parse_strict_json<Json>(without_python_numbers(read_small_file(file)), file);
  if (!json.is_object()) fail_input(file, ": is not a JSON object");
  const auto get = [&](const char* key) { return json.contains(key) ? json[key] : Json(); };
  if (get("peft_type") != "LORA")
    fail_input(file, ": peft_type ", get("peft_type").dump().substr(0, 50),
               " is not supported; supported: LORA");
  if (const std::string note = check_peft_keys(file, json); !note.empty()) note_once(file, note);
  lora_.rank = rank_of(get("r"), concat(file, ": r"));
  lora_.alpha = alpha_of(get("lora_alpha"), concat(file, ": lora_alpha"));
  lora_.rank_stabilized = get("use_rslora") == true;
  lora_.dora = get("use_dora") == true;
  ties_ = get("ensure_weight_tying") == true;
  const Json targets = get("target_modules");
  all_linear_ = targets == "all-linear";
  if (!all_linear_) targets_ = LayerNames(targets, concat(file, ": target_modules"));
  if (!all_linear_ && targets_.empty())
    fail_input(file,
               ": \"target_modules\" must be a list of names, a regular expression, or "
               "\"all-linear\"");
  lora_.targets = all_linear_ ? std::vector<std::string>{"all-linear"} : targets_.names();
  excluded_ = LayerNames(get("exclude_modules"), concat(file, ": exclude_modules"));
  read_layers(json, file);
  read_replaced(json, file);
  selects_ = targets_.is_pattern() || !excluded_.empty() || !layers_.empty();
  const Json ranks = get("rank_pattern");
  ranks_ = read_patterns(ranks, concat(file, ": rank_pattern"));
  for (const Pattern& p : ranks_)
    rank_of(ranks[p.source], concat(file, ": rank_pattern of ", p.source));
  alphas_ = read_patterns(get("alpha_pattern"), concat(file, ": alpha_pattern"));
}

void PeftConfig::read_layers(const Json& config, const std::string& file) {
  const Json layers = config.value("layers_to_transform", Json());
  const Json lists = config.value("layers_pattern", Json());
  if (!is_given(layers)) return;
  if (targets_.is_pattern() || all_linear_)
    fail_input(file,
               ": layers_to_transform with target_modules that are a string; PEFT refuses it");
  for (const Json& number : layers.is_array() ? layers : Json::array({layers})) {
    if (!number.is_number_integer())
      fail_input(file, ": layers_to_transform ", layers.dump().substr(0, 50),
                 " must be a whole number or a list of such");
    layers_.push_back(number.get<int64_t>());
  }
  if (!is_given(lists)) lists_.emplace_back(R"(^.*?\.[^.]*\.(?=\d+\.))", file);
  if (!is_given(lists)) return;
  for (const Json& list : lists.is_array() ? lists : Json::array({lists})) {
    if (!list.is_string())
      fail_input(file, ": layers_pattern must be a string or a list of strings");
    lists_.emplace_back(concat(R"(^(?:|.*?\.)(?:)", list.get<std::string>(), R"()\.(?=\d+\.))"),
                        concat(file, ": layers_pattern"));
  }
}

void PeftConfig::read_replaced(const Json& config, const std::string& file) {
  const Json bias = config.value("bias", Json());
  const Json modules = config.value("modules_to_save", Json());
  if (is_given(bias) && bias != "none" && bias != "all" && bias != "lora_only")
    fail_input(file, ": bias ", bias.dump().substr(0, 50),
               " is not supported; supported: none, all, lora_only");
  if (is_given(bias)) bias_ = bias.get<std::string>();
  if (!is_given(modules)) return;
  const auto is_name = [](const Json& name) { return name.is_string() && name != ""; };
  if (!modules.is_array() || !std::ranges::all_of(modules, is_name))
    fail_input(file, ": modules_to_save must be a list of names");
  saved_modules_ = modules.get<std::vector<std::string>>();
}

// As in PEFT: a module whose name ends with the given one, without a word boundary, or a module
// inside it.
bool PeftConfig::must_replace(const std::string& tensor) const {
  for (size_t dot = tensor.find('.'); dot != std::string::npos; dot = tensor.find('.', dot + 1)) {
    const std::string_view module = std::string_view(tensor).substr(0, dot);
    for (const std::string& name : saved_modules_)
      if (module.ends_with(name)) return true;
  }
  return false;
}

bool PeftConfig::may_replace(const std::string& tensor) const {
  constexpr std::string_view kBias = ".bias";
  if (must_replace(tensor)) return true;
  // PEFT also saves tables when one of them has an adapter, and when the vocabulary was extended.
  if (tensor.ends_with("embed_tokens.weight") || tensor.ends_with("lm_head.weight")) return true;
  if (bias_ == "none" || !tensor.ends_with(kBias)) return false;
  return bias_ == "all" || targets(tensor.substr(0, tensor.size() - kBias.size()));
}

std::vector<PeftConfig::Pattern> PeftConfig::read_patterns(const Json& value,
                                                           const std::string& what) {
  std::vector<Pattern> patterns;
  if (!is_given(value)) return patterns;
  if (!value.is_object()) fail_input(what, " must be an object of names and numbers");
  for (const auto& [source, number] : value.items())
    patterns.push_back({source, Regex(concat(R"(^(?:.*\.)?(?:)", source, ")$"), what),
                        alpha_of(number, concat(what, " of ", source))});
  return patterns;
}

const PeftConfig::Pattern* PeftConfig::find(const std::vector<Pattern>& patterns,
                                            const std::string& layer) {
  const auto found =
      std::ranges::find_if(patterns, [&](const Pattern& p) { return holds(p.regex, layer); });
  return found == patterns.end() ? nullptr : &*found;
}

int64_t PeftConfig::rank(const std::string& layer) const {
  const Pattern* const found = find(ranks_, layer);
  return found == nullptr ? lora_.rank : static_cast<int64_t>(found->value);
}

double PeftConfig::scale(const std::string& layer) const {
  const Pattern* const found = find(alphas_, layer);
  LoraConfig own = lora_;
  own.rank = rank(layer);
  if (found != nullptr) own.alpha = found->value;
  return own.scale();
}

bool PeftConfig::has_fused_patterns() const {
  if (ranks_.size() != 1 || alphas_.size() != 1 || ranks_[0].source != kFusedLayer ||
      alphas_[0].source != kFusedLayer)
    return false;
  const double alpha = fused_alpha(lora_);
  return ranks_[0].value == 3.0 * static_cast<double>(lora_.rank) &&
         std::abs(alphas_[0].value - alpha) < 1e-9 * std::abs(alpha);
}

// Returns whether the layer's number is in layers_to_transform.
bool PeftConfig::transforms(const std::string& layer) const {
  if (layers_.empty()) return true;
  for (const Regex& list : lists_)
    if (Regex::Match match; list.find(layer, 0, match))
      return std::ranges::find(layers_, number_at(layer, match.end)) != layers_.end();
  return false;
}

bool PeftConfig::targets(const std::string& layer) const {
  if (excluded_.matches(layer)) return false;
  if (all_linear_ || targets_.contains(layer)) return true;
  return targets_.matches(layer) && transforms(layer);
}

}  // namespace trireme
