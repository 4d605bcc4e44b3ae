// Field access for the parts of a tokenizer.json, with errors that name the part. `what`: prefix of
// messages, the file and the part. For .cpp files only (it includes the JSON library).
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "engine/core/error.h"
#include "engine/text/regex.h"

namespace trireme {

inline constexpr int kMaxSequenceDepth = 8;  // of nested sequences

// Returns the field; InputError if it is missing or of the wrong type.
template <class T>
T field(const nlohmann::json& json, const char* name, const std::string& what) {
  const auto found = json.is_object() ? json.find(name) : json.end();
  if (found == json.end())
    fail_input(what, ": \"", name, "\" is missing in ", json.dump().substr(0, 80));
  try {
    return found->get<T>();
  } catch (const nlohmann::json::exception&) {
    fail_input(what, ": \"", name, "\" is ", found->dump().substr(0, 60), " in ",
               json.dump().substr(0, 80), ", which has the wrong type");
  }
}

// Returns the field, or `fallback` if it is missing or null; InputError if it is of the wrong type.
template <class T>
T field_or(const nlohmann::json& json, const char* name, const std::string& what, T fallback) {
  const auto found = json.is_object() ? json.find(name) : json.end();
  if (found == json.end() || found->is_null()) return fallback;
  return field<T>(json, name, what);
}

inline std::string type_of(const nlohmann::json& json, const std::string& what) {
  return field<std::string>(json, "type", what);
}

// Returns the members of a Sequence: its list of this name, which depends on the kind of part.
// InputError if there is no such list.
inline const nlohmann::json& members(const nlohmann::json& json, const char* name,
                                     const std::string& what) {
  const auto found = json.find(name);
  if (found == json.end() || !found->is_array())
    fail_input(what, ": a Sequence has no list \"", name, "\"");
  return *found;
}

// Returns the expression of the field "pattern": {"String": text} or {"Regex": expression}.
inline Regex pattern_of(const nlohmann::json& json, const std::string& what) {
  const auto found = json.find("pattern");
  if (found != json.end() && found->is_object()) {
    if (found->contains("String"))
      return Regex(quoted_pattern(field<std::string>(*found, "String", what)), what);
    if (found->contains("Regex")) return Regex(field<std::string>(*found, "Regex", what), what);
  }
  fail_input(what, ": a pattern is neither {\"String\": ...} nor {\"Regex\": ...}");
}

}  // namespace trireme
