#include "engine/config/override.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "engine/config/nearest_word.h"
#include "engine/config/parse.h"
#include "engine/core/error.h"

namespace trireme {
namespace {

std::vector<std::string> split_path(const std::string& path) {
  std::vector<std::string> names;
  size_t start = 0;
  for (size_t dot = path.find('.'); dot != std::string::npos; dot = path.find('.', start)) {
    names.push_back(path.substr(start, dot - start));
    start = dot + 1;
  }
  names.push_back(path.substr(start));
  return names;
}

// Removes every spelling of the key, including `bf16: true` for bf16.enabled.
void erase_key(const Key& key, Json& document) {
  erase_path(document, key.path);
  for (const std::string& alias : key.aliases) erase_path(document, alias);
  if (const std::string section = parent_path(key.path);
      leaf_name(key.path) == "enabled" && document.is_object() && document.contains(section) &&
      document[section].is_boolean())
    document.erase(section);
}

std::string kebab(std::string path) {
  std::replace_if(
      path.begin(), path.end(), [](char c) { return c == '.' || c == '_'; }, '-');
  return path;
}

}  // namespace

void erase_path(Json& document, const std::string& path) {
  Json* node = &document;
  const std::vector<std::string> names = split_path(path);
  for (size_t i = 0; i + 1 < names.size(); ++i) {
    if (!node->is_object() || !node->contains(names[i])) return;
    node = &(*node)[names[i]];
  }
  if (node->is_object()) node->erase(names.back());
}

Override parse_override(const std::string& assignment) {
  const size_t equals = assignment.find('=');
  if (equals == std::string::npos || equals == 0)
    fail_input("--set ", assignment, ": write it as key=value, for example train_steps=100");
  return {assignment.substr(0, equals), assignment.substr(equals + 1)};
}

void apply_override(const Schema& schema, const Override& change, Json& document,
                    ConfigReport& report) {
  const std::vector<std::string> names = split_path(change.path);
  if (names.size() > static_cast<size_t>(kMaxConfigDepth) ||
      std::count(names.begin(), names.end(), "") != 0)
    return report.error("--set " + shown(Json(change.path)),
                        "is not a path of key names joined by dots");
  Json value;
  try {
    value = parse_json(change.value, "--set " + change.path);
  } catch (const InputError&) {
    value = change.value;  // not JSON: an unquoted string
  }
  if (const Key* key = schema.find_any(change.path)) {
    // A folder may be named 2024, a split 100.
    const bool word = value.is_number() || value.is_boolean();
    if (key->kind == KeyKind::kString && word) value = change.value;
    erase_key(*key, document);
  }
  Json* node = &document;
  for (size_t i = 0; i + 1 < names.size(); ++i) {
    if (node->is_null()) *node = Json::object();
    if (!node->is_object()) break;
    node = &(*node)[names[i]];
  }
  if (node->is_null()) *node = Json::object();
  if (!node->is_object())
    return report.error("--set " + change.path,
                        concat("passes through ", shown(*node), ", which is not an object"));
  (*node)[names.back()] = std::move(value);
}

namespace {

[[noreturn]] void fail_flag(const std::string& flag, const std::vector<std::string>& known) {
  const std::string near = nearest_word(flag, known);
  fail_input("unknown option --", flag, near.empty() ? "" : concat("; did you mean --", near, "?"));
}

}  // namespace

std::vector<std::string> overrides_from_flags(const Schema& schema,
                                              const std::vector<std::string>& arguments,
                                              const std::vector<std::string>& options) {
  std::map<std::string, std::string> paths;  // flag: canonical path
  std::vector<std::string> known = options;
  for (const Key& key : schema.keys()) {
    std::vector<std::string> spellings = key.aliases;
    spellings.push_back(key.path);
    for (const std::string& path : spellings)
      if (paths.emplace(kebab(path), path).second) known.push_back(kebab(path));
  }
  std::vector<std::string> out;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (!argument.starts_with("--")) fail_input("unexpected argument ", shown(Json(argument)));
    const size_t equals = std::min(argument.find('='), argument.size());
    const std::string flag = argument.substr(2, equals - 2);
    const auto path = paths.find(kebab(flag));
    if (path == paths.end()) fail_flag(flag, known);
    if (equals < argument.size()) {
      out.push_back(concat(path->second, "=", argument.substr(equals + 1)));
    } else if (i + 1 < arguments.size() && !arguments[i + 1].starts_with("--")) {
      out.push_back(concat(path->second, "=", arguments[++i]));
    } else if (schema.find_any(path->second)->kind == KeyKind::kBool) {
      out.push_back(path->second + "=true");
    } else {
      fail_input("--", flag, " needs a value");
    }
  }
  return out;
}

}  // namespace trireme
