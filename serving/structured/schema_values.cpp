#include "serving/structured/schema_values.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "serving/structured/number_schema.h"

namespace trireme {
namespace {

constexpr double kExactIntegers = 9007199254740992.0;  // 2^53

class ValueCheck {
 public:
  ValueCheck(const SchemaFinder& find, const std::string& path, StringCheck& strings)
      : find_(find), path_(path), strings_(strings), budget_(strings.budget()) {}

  // s: constraints.
  bool holds_all(const Schema& value, const Schema& s, int depth) {
    budget_.check_depth(depth);
    budget_.check_time();
    // With enum or const the list itself must have null.
    if (s.contains("nullable") && value.is_null() && !s.contains("enum") && !s.contains("const"))
      return true;
    if (s.contains("$ref")) {
      if (!s["$ref"].is_string()) fail_keyword(path_, "$ref", "must be a string");
      if (!holds(value, find_(s["$ref"].get<std::string>()), depth + 1)) return false;
    }
    for (const char* name : {"allOf", "anyOf", "oneOf"})
      if (s.contains(name) && !hold_of(value, s, name, depth)) return false;
    return holds_itself(value, s, depth);
  }

 private:
  bool holds(const Schema& value, const Schema& schema, int depth) {
    if (schema.is_boolean()) return schema.get<bool>();
    if (!schema.is_object()) fail_input("schema ", path_, " must be an object, true or false");
    auto known = constraints_.find(&schema);
    if (known == constraints_.end())
      known = constraints_.emplace(&schema, constraints_of(schema, path_)).first;
    return holds_all(value, known->second, depth);
  }

  bool hold_of(const Schema& value, const Schema& s, const char* name, int depth) {
    if (!s[name].is_array() || s[name].empty())
      fail_keyword(path_, name, "must be a non-empty array");
    const auto count = std::ranges::count_if(
        s[name], [&](const Schema& one) { return holds(value, one, depth + 1); });
    return name[1] == 'l' ? count == std::ssize(s[name]) : name[0] == 'o' ? count == 1 : count > 0;
  }

  bool holds_itself(const Schema& value, const Schema& s, int depth) {
    if (s.contains("type") && !(value.is_null() && s.contains("nullable"))) {
      const std::vector<std::string> types = types_of(s, path_);
      if (std::ranges::none_of(types, [&](const auto& t) { return is_of(value, t); })) return false;
    }
    if (s.contains("const") && !are_equal(value, s["const"])) return false;
    if (s.contains("enum")) {
      if (!s["enum"].is_array()) fail_keyword(path_, "enum", "must be an array");
      if (!contains_value(s["enum"], value)) return false;
    }
    if (value.is_string()) return strings_.holds(value, s, path_);
    if (value.is_number()) return holds_of_number(value, s);
    if (value.is_array()) return holds_of_array(value, s, depth);
    return !value.is_object() || holds_of_object(value, s, depth);
  }

  // a <= b; b is the value of `keyword`.
  bool at_most(const Schema& a, const Schema& b, const char* keyword) {
    const auto is_exact = [](const Schema& number) {
      return number.is_number_float() || std::abs(number.get<double>()) <= kExactIntegers;
    };
    if (a.is_number_float() != b.is_number_float() && (!is_exact(a) || !is_exact(b)))
      fail_keyword(path_, keyword, "cannot be compared exactly with a value of that many digits");
    return a <= b;
  }

  bool holds_of_number(const Schema& value, const Schema& s) {
    for (const char* name : {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}) {
      if (!s.contains(name)) continue;
      if (!s[name].is_number()) fail_keyword(path_, name, "must be a number");
      const std::string_view keyword = name;
      const bool is_low = keyword.ends_with("inimum");
      const bool fits = is_low ? at_most(s[name], value, name) : at_most(value, s[name], name);
      if (!fits || (keyword.starts_with("ex") && value == s[name])) return false;
    }
    return std::ranges::all_of(factors_of(s, path_), [&](const Factor& factor) {
      return is_multiple(value.dump(), factor);
    });
  }

  bool holds_of_array(const Schema& value, const Schema& s, int depth) {
    const auto size = std::ssize(value);
    if (size < count_of(s, "minItems", 0, path_)) return false;
    if (s.contains("maxItems") && size > count_of(s, "maxItems", -1, path_)) return false;
    const Schema& prefix = s.contains("prefixItems") ? s["prefixItems"] : none_;
    if (!prefix.is_array()) fail_keyword(path_, "prefixItems", "must be an array");
    for (size_t i = 0; i < value.size(); ++i) {
      if (i >= prefix.size() && !s.contains("items")) break;
      if (!holds(value[i], i < prefix.size() ? prefix[i] : s["items"], depth + 1)) return false;
    }
    if (s.contains("uniqueItems"))
      for (size_t i = 0; i < value.size(); ++i)
        for (size_t j = 0; j < i; ++j) {
          budget_.check_time();
          if (are_equal(value[i], value[j])) return false;
        }
    return !s.contains("contains") || holds_contains(value, s, depth);
  }
  bool holds_contains(const Schema& value, const Schema& s, int depth) {
    const auto count = std::ranges::count_if(
        value, [&](const Schema& one) { return holds(one, s["contains"], depth + 1); });
    return count >= count_of(s, "minContains", 1, path_) &&
           (!s.contains("maxContains") || count <= count_of(s, "maxContains", -1, path_));
  }

  bool holds_of_object(const Schema& value, const Schema& s, int depth) {
    const auto size = std::ssize(value);
    if (size < count_of(s, "minProperties", 0, path_)) return false;
    if (s.contains("maxProperties") && size > count_of(s, "maxProperties", -1, path_)) return false;
    const Schema& required = s.contains("required") ? s["required"] : none_;
    if (!required.is_array()) fail_keyword(path_, "required", "must be an array of strings");
    for (const Schema& name : required)
      if (!name.is_string() || !value.contains(name.get<std::string>())) return false;
    const Schema& properties = s.contains("properties") ? s["properties"] : no_members_;
    if (!properties.is_object()) fail_keyword(path_, "properties", "must be an object");
    for (const auto& [name, member] : value.items()) {
      bool is_named = properties.contains(name);
      if (is_named && !holds(member, properties[name], depth + 1)) return false;
      if (s.contains("patternProperties"))
        for (const auto& [pattern, of] : s["patternProperties"].items()) {
          if (!strings_.holds(name, {{"pattern", pattern}}, path_)) continue;
          if (!holds(member, of, depth + 1)) return false;
          is_named = true;
        }
      if (!is_named && s.contains("additionalProperties") &&
          !holds(member, s["additionalProperties"], depth + 1))
        return false;
    }
    return hold_names(value, s, depth);
  }
  bool hold_names(const Schema& value, const Schema& s, int depth) {
    for (const auto& [name, member] : value.items()) {
      if (s.contains("propertyNames") && !holds(name, s["propertyNames"], depth + 1)) return false;
      if (!s.contains("dependentRequired") || !s["dependentRequired"].contains(name)) continue;
      for (const Schema& other : s["dependentRequired"][name])
        if (!value.contains(other.get<std::string>())) return false;
    }
    return true;
  }

  const SchemaFinder& find_;
  const std::string& path_;
  StringCheck& strings_;
  CompileBudget& budget_;
  const Schema none_ = Schema::array(), no_members_ = Schema::object();
  // Keyed by the address of a schema in the request or within other constraints; it does not
  // change.
  std::map<const Schema*, Schema> constraints_;
};

}  // namespace

bool are_equal(const Schema& a, const Schema& b) {
  if (a.is_object() && b.is_object()) {
    for (const auto& [name, member] : a.items())
      if (!b.contains(name) || !are_equal(member, b[name])) return false;
    return a.size() == b.size();
  }
  if (a.is_array() && b.is_array())
    return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), are_equal);
  return a == b;
}

bool contains_value(const Schema& values, const Schema& value) {
  return std::any_of(values.begin(), values.end(),
                     [&](const Schema& one) { return are_equal(one, value); });
}

std::vector<Schema> satisfying(const Schema& values, const Schema& constraints,
                               const SchemaFinder& find, const std::string& path,
                               StringCheck& strings) {
  ValueCheck check(find, path, strings);
  std::vector<Schema> out;
  for (const Schema& value : values)
    if (check.holds_all(value, constraints, 0)) out.push_back(value);
  return out;
}

}  // namespace trireme
