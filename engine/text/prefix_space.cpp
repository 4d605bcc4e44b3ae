#include "engine/text/prefix_space.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "engine/core/error.h"
#include "engine/text/json_fields.h"
#include "engine/text/tokenizer_config.h"

namespace trireme {
namespace {

using PlainJson = nlohmann::json;

// Classes of transformers 5 that create their ByteLevel, or their Metaspace, from add_prefix_space.
constexpr const char* kByteLevelClasses[] = {"",
                                             "GPT2Tokenizer",
                                             "Qwen2Tokenizer",
                                             "Qwen3_5Tokenizer",
                                             "GPTNeoXTokenizer",
                                             "CohereTokenizer",
                                             "CodeGenTokenizer",
                                             "RobertaTokenizer",
                                             "BartTokenizer",
                                             "WhisperTokenizer"};
constexpr const char* kMetaspaceClasses[] = {"", "LlamaTokenizer", "CodeLlamaTokenizer"};
// Classes that use a tokenizer.json unchanged.
constexpr const char* kPlainClasses[] = {"PreTrainedTokenizer", "TokenizersBackend"};
constexpr const char* kSpaceCharacter = "\xE2\x96\x81";

bool is_part(const PlainJson& json, const char* type) {
  return json.is_object() && json.value("type", PlainJson()) == type;
}

// Parts of a type, including those in sequences. `list`: the name of a Sequence's members.
void find_parts_of(PlainJson& json, const char* type, const char* list,
                   std::vector<PlainJson*>& found, int depth = 0) {
  if (is_part(json, type)) found.push_back(&json);
  if (!is_part(json, "Sequence") || depth >= kMaxSequenceDepth || !json.contains(list)) return;
  if (json[list].is_array())
    for (PlainJson& member : json[list]) find_parts_of(member, type, list, found, depth + 1);
}

// Removes the parts of a type: null if there is no other part.
void drop_parts(PlainJson& json, const char* type, const char* list) {
  if (is_part(json, type)) json = nullptr;
  if (!is_part(json, "Sequence") || !json.contains(list) || !json[list].is_array()) return;
  PlainJson& members = json[list];
  members.erase(std::remove_if(members.begin(), members.end(),
                               [&](const PlainJson& one) { return is_part(one, type); }),
                members.end());
}

class PrefixSpace {
 public:
  PrefixSpace(const TokenizerConfig& config, PlainJson& json, const std::string& name)
      : config_(config),
        json_(json),
        name_(name),
        wanted_(config.adds_prefix_space.value_or(true)) {
    for (const char* key : {"normalizer", "pre_tokenizer", "decoder"})
      if (!json_.contains(key)) json_[key] = nullptr;
    find_parts_of(json_["pre_tokenizer"], "ByteLevel", "pretokenizers", byte_level_);
    find_parts_of(json_["pre_tokenizer"], "Metaspace", "pretokenizers", metaspace_);
    find_parts_of(json_["normalizer"], "Prepend", "normalizers", prepend_);
  }

  void apply() {
    const bool given = config_.adds_prefix_space.has_value();
    if (std::ranges::find(kPlainClasses, config_.tokenizer_class) != std::end(kPlainClasses))
      return;
    if (!byte_level_.empty()) return given ? apply_to_byte_level() : void();
    if (!given || wanted_ == has_prefix()) return apply_legacy();
    if (std::ranges::find(kMetaspaceClasses, config_.tokenizer_class) ==
        std::end(kMetaspaceClasses))
      refuse();
    wanted_ ? add_prefix() : drop_prefix();
  }

 private:
  [[noreturn]] void refuse() const {
    fail_input(name_, ": tokenizer_config.json has \"add_prefix_space\": ", wanted_,
               ", tokenizer.json the opposite, and the tokenizer_class \"", config_.tokenizer_class,
               "\" does not determine which applies; make both the same, or remove the key");
  }

  void apply_to_byte_level() {
    for (PlainJson* part : byte_level_) {
      const bool current = field_or(*part, "add_prefix_space", name_, true);
      if (current == wanted_) continue;
      // transformers loads such files with another class, which ignores the setting.
      if (config_.tokenizer_class == "LlamaTokenizer") continue;
      if (std::ranges::find(kByteLevelClasses, config_.tokenizer_class) ==
          std::end(kByteLevelClasses))
        refuse();
      (*part)["add_prefix_space"] = wanted_;
    }
  }

  bool has_prefix() const {
    return !prepend_.empty() || std::ranges::any_of(metaspace_, [&](const PlainJson* part) {
      const bool prefix = field_or(*part, "add_prefix_space", name_, true);
      return field_or<std::string>(*part, "prepend_scheme", name_, prefix ? "always" : "never") !=
             "never";
    });
  }

  void set_schemes(const std::vector<PlainJson*>& parts, const char* scheme) const {
    for (PlainJson* part : parts) {
      (*part)["prepend_scheme"] = scheme;
      (*part)["add_prefix_space"] = wanted_;
    }
  }

  std::vector<PlainJson*> decoders(const char* type) const {
    std::vector<PlainJson*> found;
    find_parts_of(json_["decoder"], type, "decoders", found);
    return found;
  }

  // Applies Metaspace to each part of a text, or only at its start.
  void apply_legacy() const {
    if (!config_.legacy.has_value() || config_.tokenizer_class != "LlamaTokenizer") return;
    if (prepend_.empty() && !metaspace_.empty() && has_prefix()) set_schemes(metaspace_, scheme());
  }

  const char* scheme() const { return config_.legacy.value_or(false) ? "always" : "first"; }

  void drop_prefix() const {
    drop_parts(json_["normalizer"], "Prepend", "normalizers");
    set_schemes(metaspace_, "never");
    set_schemes(decoders("Metaspace"), "never");
    drop_parts(json_["decoder"], "Strip", "decoders");
  }

  void add_prefix() const {
    if (metaspace_.empty()) {
      if (!json_["pre_tokenizer"].is_null()) refuse();
      json_["pre_tokenizer"] = {
          {"type", "Metaspace"}, {"replacement", kSpaceCharacter}, {"split", false}};
      set_schemes({&json_["pre_tokenizer"]}, scheme());
    }
    set_schemes(metaspace_, scheme());
    set_schemes(decoders("Metaspace"), scheme());
    PlainJson& decoder = json_["decoder"];
    if (is_part(decoder, "Sequence") && decoders("Strip").empty() && decoders("Metaspace").empty())
      decoder["decoders"].push_back(
          {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  }

  const TokenizerConfig& config_;
  PlainJson& json_;
  const std::string& name_;
  const bool wanted_;
  std::vector<PlainJson*> byte_level_, metaspace_, prepend_;
};

}  // namespace

void apply_prefix_space(const TokenizerConfig& config, PlainJson& tokenizer,
                        const std::string& name) {
  if (config.adds_prefix_space.has_value() || config.legacy.has_value())
    PrefixSpace(config, tokenizer, name).apply();
}

}  // namespace trireme
