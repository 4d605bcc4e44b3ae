#include "engine/text/tokenizer_config.h"

#include <charconv>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "engine/config/parse.h"
#include "engine/config/reader.h"
#include "engine/core/error.h"
#include "engine/io/atomic_file.h"
#include "engine/io/input_file.h"
#include "engine/io/strict_json.h"
#include "engine/text/json_fields.h"
#include "engine/text/tokenizer_keys.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;
using PlainJson = nlohmann::json;

constexpr int64_t kMaxSettingsBytes = 256 << 20;
constexpr JsonLimits kSettingsLimits = {.depth = 32, .keys_per_object = size_t{1} << 22};
constexpr std::string_view kTokenEnding = "_token";

PlainJson settings_of(std::string_view text, const std::string& name) {
  PlainJson json = parse_strict_json<PlainJson>(without_python_numbers(std::string(text)), name,
                                                kSettingsLimits);
  if (!json.is_object()) fail_input(name, " is not a JSON object");
  return json;
}

PlainJson settings_in(const fs::path& file) {
  if (!is_input_file(file.string())) return PlainJson::object();
  return settings_of(read_small_file(file.string(), kMaxSettingsBytes), file.string());
}

// Whether a key names a token by a model-specific role ("image_token").
bool names_token(const std::string& key, const PlainJson& value) {
  return key.ends_with(kTokenEnding) && !key.starts_with("add_") &&
         (value.is_string() || value.is_object());
}

// Value for the schema check; lists and objects, which are parsed elsewhere, by their size.
Json brief_value(const PlainJson& value) {
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_number_integer()) return value.get<int64_t>();
  if (value.is_number()) return value.get<double>();
  if (value.is_string()) return value.get<std::string>();
  if (value.is_null()) return nullptr;
  return value.empty() ? Json::array() : Json(concat(value.size(), " values"));
}

// Throws InputError for keys that are unknown or refused.
void check_settings(const PlainJson& json, const std::string& name) {
  const Schema& schema = tokenizer_config_schema();
  ConfigReport report;
  Json known = Json::object();
  for (const auto& [key, value] : json.items()) {
    if (schema.find_any(key) == nullptr) {
      if (value.is_null() || names_token(key, value) || key.ends_with("_token_id")) continue;
      report.error(shown(Json(key)),
                   concat("unknown key (value ",
                          value.is_string() ? shown(Json(value.get<std::string>()))
                                            : value.dump().substr(0, 60),
                          "), which may change how text is encoded; remove it if it does not "
                          "(docs/reference/model-keys.md lists the known keys)"));
      if (report.errors().size() >= 20) break;
      continue;
    }
    known[key] = brief_value(value);
  }
  read_config(schema, known, "", report);
  report.throw_if_errors(name);
}

std::optional<bool> flag_in(const PlainJson& json, const char* key, const std::string& name) {
  const auto found = json.find(key);
  if (found == json.end() || found->is_null()) return {};
  return field<bool>(json, key, name);
}

// Token given by its content, or by an object with its flags; nullopt for null.
std::optional<AddedToken> token_named(const PlainJson& json, const std::string& what) {
  if (json.is_null()) return {};
  PlainJson token = json.is_object() ? json : PlainJson{{"content", json}};
  token["id"] = 0;
  token["special"] = true;
  if (token.value("content", PlainJson()) == "") return {};
  AddedToken read = read_added_token(token, what);
  read.id = -1;
  return read;
}

class ConfigReader {
 public:
  ConfigReader(const PlainJson& json, const std::string& name) : json_(json), name_(name) {}

  TokenizerConfig read() {
    out_.tokenizer_class = field_or<std::string>(json_, "tokenizer_class", name_, "");
    if (out_.tokenizer_class.ends_with("Fast"))
      out_.tokenizer_class.resize(out_.tokenizer_class.size() - 4);
    out_.adds_bos = flag_in(json_, "add_bos_token", name_);
    out_.adds_eos = flag_in(json_, "add_eos_token", name_);
    out_.adds_prefix_space = flag_in(json_, "add_prefix_space", name_);
    out_.legacy = flag_in(json_, "legacy", name_);
    out_.cleans_up_spaces = flag_in(json_, "clean_up_tokenization_spaces", name_).value_or(false);
    read_added();
    for (const auto& [key, value] : json_.items()) {
      const bool standard = tokenizer_config_schema().find(key) != nullptr;
      if (names_token(key, value) || (standard && is_role(key))) add_role(key, value);
    }
    for (const char* key :
         {"additional_special_tokens", "extra_special_tokens", "model_specific_special_tokens"})
      add_list(key);
    if (const auto found = json_.find(kConfigGgufMetadata);
        found != json_.end() && !found->is_null())
      out_.gguf_metadata = found->dump();
    return std::move(out_);
  }

 private:
  static bool is_role(const std::string& key) {
    for (const TokenRole& role : kTokenRoles)
      if (role.name != nullptr && key == role.name) return true;
    return false;
  }

  void read_added() {
    const auto found = json_.find("added_tokens_decoder");
    if (found == json_.end() || found->is_null()) return;
    if (!found->is_object()) fail_input(name_, ": \"added_tokens_decoder\" is not an object");
    for (const auto& [id, token] : found->items()) {
      PlainJson one = token;
      int64_t number = -1;
      const char* const end = id.data() + id.size();
      if (std::from_chars(id.data(), end, number).ptr != end || !one.is_object())
        fail_input(name_, ": \"added_tokens_decoder\" has \"", id, "\", which is not a token id");
      one["id"] = number;
      out_.added.push_back(read_added_token(one, name_));
    }
  }

  void add_role(const std::string& key, const PlainJson& value) {
    const std::optional<AddedToken> token = token_named(value, concat(name_, ": ", key));
    out_.roles[key] = token.has_value() ? std::optional(token->content) : std::nullopt;
    if (token.has_value()) out_.named.push_back(*token);
  }

  void add_list(const char* key) {
    const auto found = json_.find(key);
    if (found == json_.end() || found->is_null()) return;
    if (!found->is_structured()) fail_input(name_, ": \"", key, "\" is not a list of tokens");
    if (found->is_object())
      for (const auto& [role, value] : found->items()) add_role(role, value);
    else
      for (const PlainJson& value : *found)
        if (const auto token = token_named(value, concat(name_, ": ", key)))
          out_.named.push_back(*token);
  }

  const PlainJson& json_;
  const std::string& name_;
  TokenizerConfig out_;
};

// transformers reads the map only if tokenizer_config.json does not list added tokens.
void merge_map(PlainJson& config, const PlainJson& map) {
  if (config.contains("added_tokens_decoder")) return;
  for (const auto& [key, value] : map.items()) config[key] = value;
}

// Adds ids of added_tokens.json that added_tokens_decoder lacks.
void merge_added(PlainJson& config, const PlainJson& added, const std::string& what) {
  if (added.empty()) return;
  std::set<std::string> specials;
  const TokenizerConfig read = ConfigReader(config, what).read();
  for (const AddedToken& token : read.named) specials.insert(token.content);
  PlainJson& decoder = config["added_tokens_decoder"];
  if (decoder.is_null()) decoder = PlainJson::object();
  for (const auto& [content, id] : added.items()) {
    const bool special = specials.contains(content);
    const AddedToken token =
        read_added_token({{"id", id}, {"content", content}, {"special", special}}, what);
    PlainJson& place = decoder[std::to_string(token.id)];
    if (place.is_null())
      place = {{"content", content},   {"special", special}, {"normalized", token.normalized},
               {"single_word", false}, {"lstrip", false},    {"rstrip", false}};
  }
}

}  // namespace

TokenizerConfig parse_tokenizer_config(std::string_view text, const std::string& name) {
  if (text.empty()) return {};
  const PlainJson json = settings_of(text, name);
  check_settings(json, name);
  return ConfigReader(json, name).read();
}

std::string tokenizer_config_beside(const std::string& directory) {
  const fs::path folder = directory;
  const std::string path = (folder / "tokenizer_config.json").string();
  PlainJson config = settings_in(path);
  check_settings(config, path);
  (void)ConfigReader(config, path).read();
  merge_map(config, settings_in(folder / "special_tokens_map.json"));
  const std::string added = (folder / "added_tokens.json").string();
  merge_added(config, settings_in(added), added);
  return config.empty() ? "" : config.dump();
}

}  // namespace trireme
