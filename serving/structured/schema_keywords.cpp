#include "serving/structured/schema_keywords.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace trireme {
namespace {

constexpr std::array kDescribing = {
    "title", "description", "default",    "examples", "example",   "$schema", "$id",
    "id",    "$comment",    "deprecated", "readOnly", "writeOnly", "$defs",   "definitions"};
// Keywords and the type they speak of; "": all.
constexpr std::array<std::pair<const char*, const char*>, 26> kKeywords = {{
    {"type", ""},
    {"enum", ""},
    {"const", ""},
    {"anyOf", ""},
    {"oneOf", ""},
    {"allOf", ""},
    {"$ref", ""},
    {"nullable", ""},
    {"minLength", "string"},
    {"maxLength", "string"},
    {"pattern", "string"},
    {"format", "string"},
    {"minimum", "number"},
    {"maximum", "number"},
    {"exclusiveMinimum", "number"},
    {"exclusiveMaximum", "number"},
    {"multipleOf", "number"},
    {"properties", "object"},
    {"required", "object"},
    {"additionalProperties", "object"},
    {"minProperties", "object"},
    {"maxProperties", "object"},
    {"items", "array"},
    {"prefixItems", "array"},
    {"minItems", "array"},
    {"maxItems", "array"},
}};
constexpr std::array kTypes = {"object", "array", "string", "number", "integer", "boolean", "null"};

bool is_describing(const std::string& name) {
  return std::ranges::find(kDescribing, name) != kDescribing.end() || name.starts_with("x-");
}

// The later of two lower bounds or the earlier of two upper ones.
const Schema& stricter(const Schema& a, const Schema& b, bool larger) {
  if (!a.is_number() || !b.is_number()) return a;  // said of the whole later
  return (a > b) == larger ? a : b;
}

bool allows(const Schema& types, const Schema& type) {
  if (types.is_string()) return types == type || (types == "number" && type == "integer");
  return std::any_of(types.begin(), types.end(), [&](const Schema& t) { return allows(t, type); });
}

Schema common_types(const Schema& a, const Schema& b) {
  Schema out = Schema::array();
  for (const char* type : kTypes)
    if (allows(a, type) && allows(b, type)) out.push_back(type);
  return out;
}

void merge_properties(Schema& into, const Schema& more) {
  for (const auto& [name, schema] : more.items()) {
    if (!into.contains(name))
      into[name] = schema;
    else if (into[name] != schema)
      into[name] = Schema{{"allOf", Schema::array({into[name], schema})}};
  }
}

bool closes(const Schema& s) {
  return s.contains("additionalProperties") && s["additionalProperties"] != true;
}

std::vector<std::string> names_of(const Schema& s) {
  std::vector<std::string> names;
  if (s.contains("properties") && s["properties"].is_object())
    for (const auto& [name, schema] : s["properties"].items()) names.push_back(name);
  std::ranges::sort(names);
  return names;
}

void merge_keyword(Schema& out, const std::string& name, const Schema& value,
                   const std::string& path) {
  Schema& old = out[name];
  if (old == value) return;
  if (name == "type") {
    old = common_types(old, value);
  } else if (name == "properties" && old.is_object() && value.is_object()) {
    merge_properties(old, value);
  } else if (name == "required" && old.is_array() && value.is_array()) {
    for (const Schema& one : value)
      if (std::find(old.begin(), old.end(), one) == old.end()) old.push_back(one);
  } else if (name == "minimum" || name == "exclusiveMinimum" || name == "minLength" ||
             name == "minItems" || name == "minProperties") {
    old = Schema(stricter(old, value, true));
  } else if (name == "maximum" || name == "exclusiveMaximum" || name == "maxLength" ||
             name == "maxItems" || name == "maxProperties") {
    old = Schema(stricter(old, value, false));
  } else if (name == "items") {
    old = Schema{{"allOf", Schema::array({old, value})}};
  } else if (name == "additionalProperties") {
    if (old == true || value == false)
      old = value;
    else if (value != true && old != false)
      old = Schema{{"allOf", Schema::array({old, value})}};
  } else if (name == "enum" && old.is_array() && value.is_array()) {
    const Schema before = old;
    old = Schema::array();
    for (const Schema& one : before)
      if (std::find(value.begin(), value.end(), one) != value.end()) old.push_back(one);
  } else if (name == "const") {
    out.erase(name);
    out["enum"] = Schema::array();
  } else if (name == "anyOf" || name == "oneOf" || name == "allOf" || name == "$ref") {
    if (!out.contains("allOf")) out["allOf"] = Schema::array();
    out["allOf"].push_back(Schema{{name, value}});
  } else {
    fail_keyword(path, name.c_str(), "is there twice, with different values, where both must hold");
  }
}

}  // namespace

void fail_keyword(const std::string& path, const char* keyword, const std::string& why) {
  fail_input("schema ", path, ": \"", std::string(keyword).substr(0, 64), "\" ", why);
}

Schema constraints_of(const Schema& schema, const std::string& path) {
  Schema out = Schema::object();
  for (const auto& item : schema.items()) {
    const std::string& name = item.key();
    const Schema& value = item.value();
    if (is_describing(name)) continue;
    // What asks for nothing.
    if (name == "uniqueItems" && value == false) continue;
    if (name == "nullable" && value == false) continue;
    const bool known =
        std::ranges::any_of(kKeywords, [&](const auto& k) { return name == k.first; });
    if (!known) fail_keyword(path, name.c_str(), "is not supported");
    out[name] = value;
  }
  return out;
}

Schema merged(const Schema& a, const Schema& b, const std::string& path, CompileBudget& budget) {
  budget.take_bytes(static_cast<int64_t>(64 * (a.size() + b.size()) + 256));
  if (budget.out_of_time()) fail_input("compiling it takes too long: make it simpler");
  // One that allows no other names knows nothing of the names of the other.
  if ((closes(a) || closes(b)) && names_of(a) != names_of(b)) {
    const bool matters = (closes(a) && !names_of(b).empty()) || (closes(b) && !names_of(a).empty());
    if (matters)
      fail_keyword(path, "additionalProperties",
                   "does not go with properties of another schema that must hold, too");
  }
  // `items` speaks of what is behind the `prefixItems` of its own schema.
  const auto prefix = [](const Schema& s) { return s.value("prefixItems", Schema()); };
  const auto speaks = [](const Schema& s) {
    return s.contains("items") || s.contains("prefixItems");
  };
  if (speaks(a) && speaks(b) && prefix(a) != prefix(b) &&
      (a.contains("items") || b.contains("items")))
    fail_keyword(path, "items",
                 "does not go with prefixItems of another schema that must hold, too");
  Schema out = a;
  for (const auto& [name, value] : b.items()) {
    if (name == "nullable") continue;  // the other one, whose own was dealt with before, has none
    if (out.contains(name))
      merge_keyword(out, name, value, path);
    else
      out[name] = value;
  }
  return out;
}

bool is_of(const Schema& value, const std::string& type) {
  if (type == "number") return value.is_number();
  if (type == "integer")
    return value.is_number_integer() ||
           (value.is_number_float() && value.get<double>() == std::floor(value.get<double>()));
  return value.is_null()      ? type == "null"
         : value.is_boolean() ? type == "boolean"
         : value.is_string()  ? type == "string"
         : value.is_array()   ? type == "array"
                              : value.is_object() && type == "object";
}

std::vector<std::string> types_of(const Schema& constraints, const std::string& path) {
  std::vector<std::string> out;
  if (constraints.contains("type")) {
    const Schema& type = constraints["type"];
    for (const Schema& one : type.is_array() ? type : Schema::array({type})) {
      const bool known =
          one.is_string() && std::ranges::any_of(kTypes, [&](const char* t) { return one == t; });
      if (!known) fail_keyword(path, "type", "must be a type of JSON, or an array of them");
      if (std::ranges::find(out, one.get<std::string>()) == out.end()) out.push_back(one);
    }
  } else {
    for (const auto& [name, value] : constraints.items())
      for (const auto& [keyword, of] : kKeywords)
        if (name == keyword && *of != '\0' && std::ranges::find(out, of) == out.end())
          out.emplace_back(of);
    if (out.empty()) out = {"object", "array", "string", "number", "boolean", "null"};
  }
  if (std::ranges::find(out, "number") != out.end()) std::erase(out, "integer");
  return out;
}

}  // namespace trireme
