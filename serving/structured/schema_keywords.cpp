#include "serving/structured/schema_keywords.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <initializer_list>

#include "serving/structured/string_formats.h"

namespace trireme {
namespace {

constexpr int64_t kMaxMinimum = 100'000;           // of characters or elements
constexpr int64_t kMaxMaximum = int64_t{1} << 30;  // beyond any text

constexpr std::array kDescribing = {"title",
                                    "description",
                                    "default",
                                    "examples",
                                    "example",
                                    "$schema",
                                    "$id",
                                    "id",
                                    "$comment",
                                    "$anchor",
                                    "$dynamicAnchor",
                                    "$recursiveAnchor",
                                    "$vocabulary",
                                    "deprecated",
                                    "readOnly",
                                    "writeOnly",
                                    "$defs",
                                    "components",
                                    "definitions",
                                    "contentMediaType",
                                    "contentEncoding",
                                    "contentSchema",
                                    "discriminator",
                                    "externalDocs",
                                    "xml",
                                    "enumNames",
                                    "enumDescriptions",
                                    "markdownDescription",
                                    "errorMessage",
                                    "propertyOrdering"};
// Keywords and the type that they refer to; "": all types.
constexpr std::array<std::pair<const char*, const char*>, 33> kKeywords = {{
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
    {"propertyNames", "object"},
    {"patternProperties", "object"},
    {"dependentRequired", "object"},
    {"items", "array"},
    {"prefixItems", "array"},
    {"minItems", "array"},
    {"maxItems", "array"},
    {"uniqueItems", "array"},
    {"contains", "array"},
    {"minContains", "array"},
    {"maxContains", "array"},
}};
constexpr std::array kTypes = {"object", "array", "string", "number", "integer", "boolean", "null"};

bool is_describing(const std::string& name) {
  return std::ranges::find(kDescribing, name) != kDescribing.end() || name.starts_with("x-");
}

// Larger of two lower bounds, or smaller of two upper bounds.
const Schema& stricter(const Schema& a, const Schema& b, bool larger) {
  if (!a.is_number() || !b.is_number()) return a;  // reported later, for the merged schema
  return (a > b) == larger ? a : b;
}

bool allows(const Schema& types, const Schema& type) {
  if (types.is_string()) return types == type || (types == "number" && type == "integer");
  if (!types.is_array()) return false;
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

// into, more: by property name, the names of the properties that it requires.
void add_dependencies(Schema& into, const Schema& more) {
  for (const auto& [trigger, names] : more.items()) {
    Schema& all = into[trigger];
    if (all.is_null()) all = Schema::array();
    for (const Schema& name : names)
      if (std::find(all.begin(), all.end(), name) == all.end()) all.push_back(name);
  }
}

bool closes(const Schema& s) {
  return s.contains("additionalProperties") && s["additionalProperties"] != true;
}

// Copy of s. Properties that `other` does not name must also satisfy other's additionalProperties.
Schema with_additional(const Schema& s, const Schema& other) {
  if (!closes(other) || !s.contains("properties") || !s["properties"].is_object()) return s;
  Schema out = s;
  const Schema named = other.value("properties", Schema::object());
  const Schema& additional = other["additionalProperties"];
  for (auto& [name, schema] : out["properties"].items()) {
    if (named.contains(name)) continue;
    schema =
        additional == false ? additional : Schema{{"allOf", Schema::array({schema, additional})}};
  }
  return out;
}

void merge_keyword(Schema& out, const std::string& name, const Schema& value,
                   const std::string& path) {
  Schema& old = out[name];
  if (old == value) return;
  if (name == "type") {
    old = common_types(old, value);
  } else if ((name == "properties" || name == "patternProperties") && old.is_object() &&
             value.is_object()) {
    merge_properties(old, value);
  } else if (name == "required" && old.is_array() && value.is_array()) {
    for (const Schema& one : value)
      if (std::find(old.begin(), old.end(), one) == old.end()) old.push_back(one);
  } else if (name == "minimum" || name == "exclusiveMinimum" || name == "minLength" ||
             name == "minItems" || name == "minProperties" || name == "minContains") {
    old = Schema(stricter(old, value, true));
  } else if (name == "maximum" || name == "exclusiveMaximum" || name == "maxLength" ||
             name == "maxItems" || name == "maxProperties" || name == "maxContains") {
    old = Schema(stricter(old, value, false));
  } else if (name == "items" || name == "propertyNames") {
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
  } else if (name == "dependentRequired") {
    add_dependencies(old, value);
  } else if (name == "pattern" || name == "format" || name == "multipleOf") {
    if (!old.is_array()) old = Schema::array({old});
    for (const Schema& one : value.is_array() ? value : Schema::array({value}))
      if (std::find(old.begin(), old.end(), one) == old.end()) old.push_back(one);
  } else if (name == "const") {
    out.erase(name);
    out["enum"] = Schema::array();
  } else if (name == "allOf" && old.is_array() && value.is_array()) {
    for (const Schema& one : value) old.push_back(one);
  } else if (name == "anyOf" || name == "oneOf" || name == "allOf" || name == "$ref") {
    if (!out.contains("allOf")) out["allOf"] = Schema::array();
    if (!out["allOf"].is_array()) fail_keyword(path, "allOf", "must be a non-empty array");
    out["allOf"].push_back(Schema{{name, value}});
  } else {
    fail_keyword(path, name.c_str(),
                 "is not supported with different values in schemas that both apply");
  }
}

// True for a schema that every value satisfies.
bool is_anything(const Schema& schema) {
  if (schema == true) return true;
  if (!schema.is_object()) return false;
  for (const auto& [name, value] : schema.items())
    if (!is_describing(name)) return false;
  return true;
}

bool is_anything_at(const Schema& s, const char* name) {
  return !s.contains(name) || is_anything(s[name]);
}

// True if everything that dependents require is required anyway.
bool are_required(const Schema& s, const Schema& dependents) {
  const Schema required = s.value("required", Schema::array());
  return std::ranges::all_of(dependents, [&](const Schema& names) {
    return names.is_array() && std::ranges::all_of(names, [&](const Schema& name) {
             return std::ranges::find(required, name) != required.end();
           });
  });
}

// True if a keyword with this value constrains nothing.
bool allows_everything(const Schema& s, const std::string& name, const Schema& value) {
  const auto is = [&](std::initializer_list<const char*> names) {
    return std::ranges::any_of(names, [&](const char* one) { return name == one; });
  };
  if (is({"nullable", "exclusiveMinimum", "exclusiveMaximum", "not"})) return value == false;
  if (name == "uniqueItems")
    return value == false || (value == true && s.contains("maxItems") &&
                              s["maxItems"].is_number() && s["maxItems"] <= 1);
  if (name == "propertyNames") {
    Schema names = value;
    if (names.is_object() && names.contains("type") && names["type"] == "string")
      names.erase("type");
    return is_anything(names);
  }
  if (is({"unevaluatedProperties", "unevaluatedItems"})) return is_anything(value);
  if (is({"dependentRequired", "dependencies"})) return value.is_object() && are_required(s, value);
  if (is({"dependentSchemas", "patternProperties"})) return value.is_object() && value.empty();
  if (name == "if") return is_anything_at(s, "then") && is_anything_at(s, "else");
  if (is({"then", "else"})) return !s.contains("if") || is_anything(value);
  if (is({"minContains", "maxContains"}) && !s.contains("contains")) return true;
  if (name == "minContains") return value == 0 && !s.contains("maxContains");
  if (name == "contains")
    return s.contains("minContains") && s["minContains"] == 0 && !s.contains("maxContains");
  if (name == "additionalItems") return !s.contains("items") || !s["items"].is_array();
  return false;
}

bool is_list_of_strings(const Schema& value) {
  return value.is_array() && std::ranges::all_of(value, &Schema::is_string);
}

void check_kind(const Schema& value, const std::string& path, const std::string& keyword) {
  const auto require = [&](bool holds, const char* kind) {
    if (!holds) fail_keyword(path, keyword.c_str(), concat("must be ", kind));
  };
  if (keyword == "pattern" || keyword == "format") require(value.is_string(), "a string");
  if (keyword == "multipleOf") require(value.is_number(), "a number");
  if (keyword == "patternProperties") require(value.is_object(), "an object");
  if (keyword == "uniqueItems") require(value.is_boolean(), "true or false");
  if (keyword == "dependentRequired")
    require(value.is_object() && std::ranges::all_of(value, is_list_of_strings),
            "an object of arrays of strings");
}

// Renames `dependencies` and `dependentSchemas` that only require properties to dependentRequired.
void rename_dependencies(Schema& s, const std::string& path) {
  for (const char* keyword : {"dependencies", "dependentSchemas"}) {
    if (!s.contains(keyword) || !s[keyword].is_object()) continue;
    Schema required = Schema::object(), others = Schema::object();
    for (const auto& [trigger, of] : s[keyword].items()) {
      const bool only_requires = of.is_object() && of.size() == 1 && of.contains("required");
      const Schema& names = only_requires ? of["required"] : of;
      if (is_list_of_strings(names))
        required[trigger] = names;
      else if (!is_anything(of))
        others[trigger] = of;
    }
    if (others.empty())
      s.erase(keyword);
    else
      s[keyword] = std::move(others);
    if (!s.contains("dependentRequired")) s["dependentRequired"] = Schema::object();
    check_kind(s["dependentRequired"], path, "dependentRequired");
    add_dependencies(s["dependentRequired"], required);
  }
}

// Replaces spellings of earlier drafts, and unevaluated* keywords that mean the same as
// additional*.
Schema modern(const Schema& schema, const std::string& path) {
  Schema s = schema;
  for (const auto& [bound, excluded] :
       {std::pair{"minimum", "exclusiveMinimum"}, {"maximum", "exclusiveMaximum"}}) {
    if (!s.contains(excluded) || s[excluded] != true) continue;
    if (s.contains(bound)) s[excluded] = s[bound];
    s.erase(s.contains(bound) ? bound : excluded);
  }
  if (s.contains("items") && s["items"].is_array() && !s.contains("prefixItems")) {
    const Schema prefix = s["items"], more = s.value("additionalItems", Schema(true));
    s.erase("items");
    s.erase("additionalItems");
    if (!prefix.empty()) s["prefixItems"] = prefix;
    s["items"] = more;
  }
  rename_dependencies(s, path);
  constexpr std::array kInPlace = {"$ref", "$dynamicRef",      "allOf",   "anyOf", "oneOf", "if",
                                   "not",  "dependentSchemas", "contains"};
  const bool is_alone =
      std::ranges::none_of(kInPlace, [&](const char* name) { return s.contains(name); });
  for (const auto& [name, others] : {std::pair{"unevaluatedProperties", "additionalProperties"},
                                     {"unevaluatedItems", "items"}}) {
    if (!is_alone || !s.contains(name)) continue;
    if (!s.contains(others)) s[others] = s[name];
    s.erase(name);
  }
  return s;
}

}  // namespace

void fail_keyword(const std::string& path, const char* keyword, const std::string& why) {
  fail_input("schema ", path, ": \"", std::string(keyword).substr(0, 64), "\" ", why);
}

Schema constraints_of(const Schema& schema, const std::string& path) {
  Schema out = Schema::object();
  const Schema all = modern(schema, path);
  for (const auto& item : all.items()) {
    const std::string& name = item.key();
    const Schema& value = item.value();
    if (is_describing(name) || allows_everything(all, name, value)) continue;
    check_kind(value, path, name);
    if (name == "format" && format_expression(value.get<std::string>()).empty()) continue;
    const bool known =
        std::ranges::any_of(kKeywords, [&](const auto& k) { return name == k.first; });
    if (!known) fail_keyword(path, name.c_str(), "is not supported");
    out[name] = value;
  }
  // Made explicit: merging schemas must not lose the default.
  if (out.contains("contains") && !out.contains("minContains")) out["minContains"] = 1;
  return out;
}

int64_t count_of(const Schema& s, const char* keyword, int64_t otherwise, const std::string& path) {
  if (!s.contains(keyword)) return otherwise;
  const Schema& value = s[keyword];
  const double number = value.is_number() ? value.get<double>() : -1;
  if (number < 0 || number != std::floor(number))
    fail_keyword(path, keyword, "must be an integer from 0 on");
  if (std::string_view(keyword).starts_with("max"))
    return static_cast<int64_t>(std::min(number, static_cast<double>(kMaxMaximum)));
  if (number > static_cast<double>(kMaxMinimum))
    fail_keyword(path, keyword, concat("is larger than ", kMaxMinimum));
  return static_cast<int64_t>(number);
}

Schema merged(const Schema& a, const Schema& b, const std::string& path, CompileBudget& budget) {
  budget.take_bytes(static_cast<int64_t>(64 * (a.size() + b.size()) + 256));
  if (budget.out_of_time()) fail_input("compiling the constraint takes too long: make it simpler");
  // `items` applies after the `prefixItems` of its own schema only.
  const auto prefix = [](const Schema& s) { return s.value("prefixItems", Schema()); };
  const auto speaks = [](const Schema& s) {
    return s.contains("items") || s.contains("prefixItems");
  };
  if (speaks(a) && speaks(b) && prefix(a) != prefix(b) &&
      (a.contains("items") || b.contains("items")))
    fail_keyword(path, "items",
                 "is not supported together with prefixItems of another schema that also applies");
  // Patterns determine which properties are additional.
  for (const auto& [one, other] : {std::pair{&a, &b}, {&b, &a}})
    if (one->contains("patternProperties") &&
        (closes(*other) ||
         (closes(*one) && (other->contains("patternProperties") || other->contains("properties")))))
      fail_keyword(
          path, "patternProperties",
          "is not supported together with properties of another schema that also applies, if one "
          "of them has additionalProperties");
  Schema out = with_additional(a, b);
  const Schema more = with_additional(b, a);
  for (const auto& [name, value] : more.items()) {
    if (name == "nullable") continue;  // `a` has none: the caller has handled it
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
      if (!known)
        fail_keyword(path, "type",
                     "must be object, array, string, number, integer, boolean or null, or an array "
                     "of these");
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
