#include "serving/structured/schema_overlap.h"

#include <algorithm>

#include "serving/structured/number_schema.h"
#include "serving/structured/schema_values.h"

namespace trireme {
namespace {

constexpr size_t kMaxWays = 256;  // alternatives of a schema
constexpr int kMaxSteps = 20'000, kMaxDepth = 64;

bool has_values(const Schema& s) { return s.contains("enum") || s.contains("const"); }

// True only if a <= b is certain: bounds of different number types are compared as doubles.
bool at_most(const Schema& a, const Schema& b) {
  return a < b || (a == b && a.is_number_float() == b.is_number_float());
}

// Number given by a keyword; null: none.
Schema number_of(const Schema& s, const char* keyword) {
  const Schema value = s.value(keyword, Schema());
  return value.is_number() ? value : Schema();
}

// True if a's lower bound is above b's upper bound.
bool is_above(const Schema& a, const char* least, const Schema& b, const char* most) {
  const Schema low = number_of(a, least), high = number_of(b, most);
  return !low.is_null() && !high.is_null() && high < low;
}

bool counts_differ(const Schema& a, const Schema& b, const char* least, const char* most) {
  return is_above(a, least, b, most) || is_above(b, least, a, most);
}

// True if no number is within the bounds of both.
bool numbers_differ(const Schema& a, const Schema& b) {
  for (const auto& [low, high] : {std::pair{&a, &b}, {&b, &a}}) {
    if (is_above(*low, "minimum", *high, "maximum")) return true;
    for (const auto& [least, most] : {std::pair{"exclusiveMinimum", "maximum"},
                                      {"minimum", "exclusiveMaximum"},
                                      {"exclusiveMinimum", "exclusiveMaximum"}}) {
      const Schema from = number_of(*low, least), to = number_of(*high, most);
      if (!from.is_null() && !to.is_null() && at_most(to, from)) return true;
    }
  }
  return false;
}

std::vector<std::string> required_of(const Schema& s) {
  std::vector<std::string> names;
  for (const Schema& name : s.value("required", Schema::array()))
    if (name.is_string()) names.push_back(name);
  return names;
}

Schema properties_of(const Schema& s) {
  const Schema properties = s.value("properties", Schema::object());
  return properties.is_object() ? properties : Schema::object();
}

// True if another property requires this name.
bool is_dependent(const Schema& s, const std::string& name) {
  const Schema dependent = s.value("dependentRequired", Schema::object());
  return std::any_of(dependent.begin(), dependent.end(), [&](const Schema& names) {
    return std::find(names.begin(), names.end(), name) != names.end();
  });
}

// True if texts generated for the schema have no names except those that it lists.
bool is_closed(const Schema& s) {
  if (s.contains("patternProperties")) return false;
  if (s.contains("additionalProperties")) return s["additionalProperties"] == false;
  return s.contains("properties") || !required_of(s).empty();
}

class OverlapSearch {
 public:
  using Ways = std::vector<Schema>;  // alternatives: each value satisfies at least one of them

  OverlapSearch(const SchemaFinder& find, std::string path, StringCheck& strings)
      : find_(find), path_(std::move(path)), strings_(strings), budget_(strings.budget()) {}

  // Alternatives of a schema. beside: further constraints.
  Ways ways_of(const Schema& schema, const Schema& beside = Schema::object()) {
    Ways out;
    add_ways(beside, schema, out);
    return out;
  }

  bool overlap(const Ways& made, const Ways& other) {
    return gave_up_ || std::ranges::any_of(made, [&](const Schema& a) {
             return std::ranges::any_of(other, [&](const Schema& b) { return both(a, b); });
           });
  }

 private:
  struct Deeper {
    explicit Deeper(int& its_depth) : depth(its_depth) { ++depth; }
    ~Deeper() { --depth; }
    Deeper(const Deeper&) = delete;
    Deeper& operator=(const Deeper&) = delete;
    int& depth;
  };
  // False: the search is given up.
  bool step() {
    budget_.check_time();
    gave_up_ = gave_up_ || ++steps_ > kMaxSteps || depth_ > kMaxDepth;
    return !gave_up_;
  }

  // Adds the alternatives of values that satisfy both.
  void add_ways(const Schema& beside, const Schema& schema, Ways& out) {
    const Deeper deeper(depth_);
    if (schema == false || !step()) return;
    if (schema == true) return resolve(beside, out);
    if (!schema.is_object()) fail_input("schema ", path_, " must be an object, true or false");
    Schema own = constraints_of(schema, path_);
    if (!beside.empty() && own.erase("nullable") > 0 && !has_values(own))
      out.push_back({{"type", "null"}});  // only if `beside` allows null, too
    resolve(beside.empty() ? std::move(own) : merged(beside, own, path_, budget_), out);
  }

  void resolve(Schema s, Ways& out) {
    if (!step()) return;
    if (s.contains("nullable")) {  // with enum or const the list itself must have null
      s.erase("nullable");
      if (!has_values(s)) out.push_back({{"type", "null"}});
    }
    if (s.contains("$ref") && s["$ref"].is_string()) {
      const auto to = s["$ref"].get<std::string>();
      s.erase("$ref");
      return add_ways(s, find_(to), out);
    }
    for (const char* name : {"anyOf", "oneOf", "allOf"}) {
      if (!s.contains(name)) continue;
      const Schema list = s[name];
      s.erase(name);
      if (!list.is_array() || list.empty()) fail_keyword(path_, name, "must be a non-empty array");
      if (name[1] == 'l') {
        Schema rest = Schema::array();
        for (size_t i = 1; i < list.size(); ++i) rest.push_back(list[i]);
        if (!rest.empty()) s["allOf"] = std::move(rest);
        return add_ways(s, list[0], out);
      }
      for (const Schema& one : list) add_ways(s, one, out);
      return;
    }
    gave_up_ = gave_up_ || out.size() == kMaxWays;
    if (!gave_up_) out.push_back(std::move(s));
  }

  // True if a text generated for `made` may satisfy `other`. Without a type, texts have the types
  // that the keywords of `made` refer to, and no others.
  bool both(const Schema& made, const Schema& other) {
    const Deeper deeper(depth_);
    if (!step()) return true;
    if (has_values(made) || has_values(other)) {
      const Schema& values = has_values(made) ? made : other;
      const Schema& schema = has_values(made) ? other : made;
      const Schema all =
          values.contains("enum") ? values["enum"] : Schema::array({values["const"]});
      return std::any_of(all.begin(), all.end(), [&](const Schema& v) {
        return may_hold(v, values) && may_hold(v, schema);
      });
    }
    const std::vector<std::string> types = types_of(made, path_);
    return std::ranges::any_of(types, [&](const std::string& type) {
      return may_be(type, other) && both_of_type(type, made, other);
    });
  }

  bool may_be(const std::string& type, const Schema& s) const {
    if (!s.contains("type")) return true;
    return std::ranges::any_of(types_of(s, path_), [&](const std::string& t) {
      return t == type || (t == "number" && type == "integer") ||
             (t == "integer" && type == "number");
    });
  }

  bool both_of_type(const std::string& type, const Schema& made, const Schema& other) {
    if (type == "number" || type == "integer") return !numbers_differ(made, other);
    if (type == "string") return !counts_differ(made, other, "minLength", "maxLength");
    if (type == "array") return !counts_differ(made, other, "minItems", "maxItems");
    return type != "object" || both_objects(made, other);
  }

  bool both_objects(const Schema& made, const Schema& other) {
    const Schema of_made = properties_of(made), of_other = properties_of(other);
    const std::vector<std::string> always = required_of(made), wanted = required_of(other);
    const auto is_in = [](const auto& names, const std::string& name) {
      return std::ranges::find(names, name) != names.end();
    };
    for (const std::string& name : wanted)
      if (is_closed(made) && !of_made.contains(name) && !is_in(always, name) &&
          !is_dependent(made, name))
        return false;
    if (other.value("additionalProperties", Schema()) == false &&
        !other.contains("patternProperties"))
      for (const std::string& name : always)
        if (!of_other.contains(name)) return false;
    for (const auto& [name, schema] : of_made.items()) {
      if (!of_other.contains(name) || !(is_in(always, name) || is_in(wanted, name))) continue;
      if (!overlap(ways_of(schema), ways_of(of_other[name]))) return false;
    }
    return true;
  }

  // False: the value certainly does not satisfy the schema.
  bool may_hold(const Schema& value, const Schema& s) {
    const Deeper deeper(depth_);
    if (!step()) return true;
    if (s.contains("type") &&
        std::ranges::none_of(types_of(s, path_), [&](const auto& t) { return is_of(value, t); }))
      return false;
    if (s.contains("const") && !are_equal(value, s["const"])) return false;
    if (s.contains("enum") && !contains_value(s["enum"], value)) return false;
    if (value.is_string()) return may_match(value, s);
    if (value.is_number()) {
      const Schema just = {{"minimum", value}, {"maximum", value}};
      return !numbers_differ(just, s) &&
             std::ranges::all_of(factors_of(s, path_), [&](const Factor& factor) {
               return is_multiple(value.dump(), factor);
             });
    }
    if (!value.is_object()) return true;
    for (const std::string& name : required_of(s))
      if (!value.contains(name)) return false;
    const Schema properties = properties_of(s);
    for (const auto& [name, schema] : properties.items()) {
      if (!value.contains(name)) continue;
      const Ways ways = ways_of(schema);
      const Schema& member = value[name];
      if (!gave_up_ &&
          std::ranges::none_of(ways, [&](const Schema& way) { return may_hold(member, way); }))
        return false;
    }
    return true;
  }

  bool may_match(const Schema& text, const Schema& s) {
    Schema strict = Schema::object();
    for (const char* keyword : {"minLength", "maxLength", "pattern"})
      if (s.contains(keyword)) strict[keyword] = s[keyword];
    return strings_.holds(text, strict, path_);
  }

  const SchemaFinder& find_;
  const std::string path_;
  StringCheck& strings_;
  CompileBudget& budget_;
  int steps_ = 0, depth_ = 0;
  bool gave_up_ = false;  // then an overlap is assumed
};

}  // namespace

std::optional<std::pair<size_t, size_t>> find_overlap(const Schema& beside, const Schema& schemas,
                                                      const SchemaFinder& find,
                                                      const std::string& path,
                                                      StringCheck& strings) {
  OverlapSearch search(find, path, strings);
  std::vector<OverlapSearch::Ways> ways;
  ways.reserve(schemas.size());
  for (const Schema& schema : schemas) ways.push_back(search.ways_of(schema, beside));
  for (size_t i = 0; i < ways.size(); ++i)
    for (size_t j = 0; j < ways.size(); ++j)
      if (i != j && search.overlap(ways[i], ways[j])) return std::pair{i, j};
  return {};
}

}  // namespace trireme
