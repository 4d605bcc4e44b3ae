#include "engine/text/named_tokens.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "engine/core/error.h"
#include "engine/io/atomic_file.h"
#include "engine/io/strict_json.h"

namespace trireme {
namespace {

using Json = nlohmann::json;
using TokenNames = std::map<std::string, std::string>;

constexpr const char* kStandardNames[] = {"unk_token", "sep_token", "pad_token", "cls_token",
                                          "mask_token"};

Json object_of(const std::filesystem::path& path) {
  if (!std::filesystem::is_regular_file(path)) return Json::object();
  Json json = parse_strict_json<Json>(read_small_file(path.string(), 64 << 20), path.string());
  return json.is_object() ? json : Json::object();
}

// A text, or an object with its flags.
const Json* content_of(const Json& token) {
  if (token.is_string()) return &token;
  const auto found = token.is_object() ? token.find("content") : token.end();
  return token.is_object() && found != token.end() && found->is_string() ? &*found : nullptr;
}

void add_name(const std::string& name, const Json& token, const std::string& what,
              TokenNames& names) {
  if (token.is_null()) return void(names.erase(name));
  const Json* const content = content_of(token);
  if (content == nullptr)
    fail_input(what, ": \"", name, "\" is ", token.dump().substr(0, 60), ", which is no token");
  names[name] = content->get<std::string>();
}

void add_names(const Json& config, const std::string& what, TokenNames& names) {
  for (const char* name : kStandardNames)
    if (config.contains(name)) add_name(name, config[name], what, names);
  // add_bos_token and its like are flags.
  for (const auto& [name, value] : config.items())
    if (name.ends_with("_token") && content_of(value) != nullptr)
      add_name(name, value, what, names);
  for (const char* group : {"extra_special_tokens", "model_specific_special_tokens"})
    if (const auto found = config.find(group); found != config.end() && found->is_object())
      for (const auto& [name, value] : found->items()) add_name(name, value, what, names);
}

}  // namespace

TokenNames named_tokens(const std::string& tokenizer) {
  TokenNames names;
  if (tokenizer.empty() || tokenizer == "byte" || tokenizer.ends_with(".gguf")) return names;
  const std::filesystem::path given(tokenizer);
  const std::filesystem::path folder =
      std::filesystem::is_directory(given) ? given : given.parent_path();
  const std::filesystem::path config_path = folder / "tokenizer_config.json",
                              map_path = folder / "special_tokens_map.json";
  const Json config = object_of(config_path);
  add_names(config, config_path.string(), names);
  if (!config.contains("added_tokens_decoder"))
    add_names(object_of(map_path), map_path.string(), names);
  names.erase("bos_token");
  names.erase("eos_token");
  return names;
}

}  // namespace trireme
