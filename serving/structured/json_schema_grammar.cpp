#include "serving/structured/json_schema_grammar.h"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>

#include "engine/io/strict_json.h"
#include "serving/structured/array_schema.h"
#include "serving/structured/number_schema.h"
#include "serving/structured/object_schema.h"
#include "serving/structured/schema_candidates.h"
#include "serving/structured/schema_overlap.h"
#include "serving/structured/schema_values.h"
#include "serving/structured/string_schema.h"

namespace trireme {
namespace {

using Node = Grammar::Node;

class SchemaCompiler final : public Subschemas {
 public:
  SchemaCompiler(JsonGrammar& json, Schema root)
      : g_(json.grammar()), json_(json), strings_(g_.budget()), root_(std::move(root)) {}

  Node compile_root() {
    const Node whole = reference("#", "#");
    // Referenced schemas are compiled one after another: references may be cyclic.
    for (; !waiting_.empty(); waiting_.pop_front()) {
      const auto [rule, path] = waiting_.front();
      g_.define(rule, compile(found(path, path), path, 0));
    }
    return whole;
  }

  JsonGrammar& json() override { return json_; }

  Node compile(const Schema& given, const std::string& path, int depth) override {
    g_.budget().check_depth(depth);
    if (given.is_boolean()) return given == true ? json_.value() : g_.choice({});
    if (!given.is_object()) fail_input("schema ", path, " must be an object, true or false");
    return constrained(constraints_of(given, path), path, depth);
  }

  std::optional<std::vector<Schema>> list_values(const Schema& schema, const std::string& path,
                                                 size_t max_count) override {
    const SchemaFinder find = finder(path);
    const auto candidates = candidate_values(schema, find, CandidateSource::kTypes, max_count);
    if (!candidates) return {};
    Schema values = Schema::array();
    for (const Schema& value : *candidates)
      if (!contains_value(values, value)) values.push_back(value);
    return select(values, schema, path);
  }

  bool satisfies(const Schema& value, const Schema& schema, const std::string& path) override {
    return !select(Schema::array({value}), schema, path).empty();
  }

  bool exclude_each_other(const Schema& schemas, const std::string& path) override {
    return !find_overlap(Schema::object(), schemas, finder(path), path, strings_).has_value();
  }

  const FiniteAutomaton& pattern_automaton(const std::string& pattern,
                                           const std::string& path) override {
    return strings_.pattern_automaton(pattern, path);
  }

  Schema flattened(const Schema& schema, const std::string& path) override {
    Schema nothing = {{"enum", Schema::array()}};
    if (schema.is_boolean()) return schema == true ? Schema::object() : nothing;
    if (!schema.is_object()) fail_input("schema ", path, " must be an object, true or false");
    Schema s = constraints_of(schema, path);
    for (int depth = 0; s.contains("$ref") || s.contains("allOf"); ++depth) {
      g_.budget().check_depth(depth);
      const Schema more = s.contains("$ref") ? take_reference(s, path) : take_first_of_all(s, path);
      if (more == false) return nothing;
      if (more.is_object()) s = merged(s, constraints_of(more, path), path, g_.budget());
    }
    return s;
  }

 private:
  Node reference(const std::string& path, const std::string& where) {
    const auto [at, is_new] = references_.try_emplace(path, -1);
    if (is_new) {
      found(path, where);
      at->second = g_.add_rule();
      waiting_.emplace_back(at->second, path);
    }
    return g_.call(at->second);
  }

  // Schema that a reference such as "#/$defs/name" points to.
  const Schema& found(const std::string& path, const std::string& where) {
    if (path.empty() || path[0] != '#')
      fail_keyword(where, "$ref", concat("\"", path.substr(0, 80), "\" is not within the schema"));
    const Schema* at = &root_;
    for (size_t begin = 1; begin < path.size();) {
      const size_t end = std::min(path.find('/', begin + 1), path.size());
      const std::string part = unescaped(path.substr(begin + 1, end - begin - 1));
      const Schema* next = nullptr;
      if (at->is_object() && at->contains(part)) next = &(*at)[part];
      if (at->is_array() && !part.empty() && part.size() < 9 &&
          part.find_first_not_of("0123456789") == std::string::npos &&
          std::stoul(part) < at->size())
        next = &(*at)[std::stoul(part)];
      if (path[begin] != '/' || next == nullptr)
        fail_keyword(where, "$ref", concat("\"", path.substr(0, 80), "\" refers to nothing"));
      at = next;
      begin = end;
    }
    return *at;
  }
  static std::string unescaped(std::string part) {
    for (const auto& [from, to] : {std::pair{"~1", "/"}, {"~0", "~"}, {"%24", "$"}, {"%20", " "}})
      for (size_t at = 0; (at = part.find(from, at)) != std::string::npos; at += 1)
        part.replace(at, std::string_view(from).size(), to);
    return part;
  }

  // The values that satisfy a schema.
  std::vector<Schema> select(const Schema& values, const Schema& schema, const std::string& path) {
    if (schema.is_boolean())
      return schema == true ? std::vector<Schema>(values.begin(), values.end())
                            : std::vector<Schema>();
    if (!schema.is_object()) fail_input("schema ", path, " must be an object, true or false");
    return satisfying(values, constraints_of(schema, path), finder(path), path, strings_);
  }

  SchemaFinder finder(const std::string& path) {
    return [this, path](const std::string& to) -> const Schema& { return found(to, path); };
  }

  // Resolves references and combining keywords until only keywords of types are left.
  Node constrained(Schema s, const std::string& path, int depth) {
    g_.budget().check_depth(depth);
    if (s.contains("nullable")) {
      if (s["nullable"] != true) fail_keyword(path, "nullable", "must be true or false");
      s.erase("nullable");
      // With enum or const, nullable only extends the type: the list itself must have null.
      Schema of_null = s;
      of_null.erase("type");
      const bool is_listed = s.contains("enum") || s.contains("const");
      const bool allows_null = !is_listed || allows(nullptr, of_null, path);
      const Node others = constrained(std::move(s), path, depth + 1);
      return allows_null ? g_.choice({others, g_.literal("null")}) : others;
    }
    if (s.size() == 1 && s.contains("$ref") && s["$ref"].is_string())
      return reference(s["$ref"].get<std::string>(), path);
    if (const auto listed = listed_values(s, path)) return values(*listed, s, path);
    if (s.contains("$ref")) {
      const Schema target = take_reference(s, path);
      return both(s, target, path, depth);
    }
    // Own anyOf or oneOf first: a schema of allOf may have another one.
    if (s.contains("allOf") && !s.contains("anyOf") && !s.contains("oneOf")) {
      if (s.size() == 1 && s["allOf"].is_array() && s["allOf"].size() == 1)
        return compile(s["allOf"][0], path + "/allOf/0", depth + 1);
      const Schema first = take_first_of_all(s, path);
      return both(s, first, path, depth);
    }
    for (const char* name : {"anyOf", "oneOf"}) {
      if (!s.contains(name)) continue;
      const Schema alternatives = list(s, name, path);
      s.erase(name);
      if (name[0] == 'o') check_exclusive(s, alternatives, path);
      std::vector<Node> ways;
      for (size_t i = 0; i < alternatives.size(); ++i) {
        const std::string where = concat(path, "/", name, "/", i);
        ways.push_back(s.empty() ? compile(alternatives[i], where, depth + 1)
                                 : both(s, alternatives[i], where, depth));
      }
      return g_.choice(std::move(ways));
    }
    return of_types(s, path, depth);
  }

  // InputError if a text of one schema of oneOf may satisfy another one.
  void check_exclusive(const Schema& beside, const Schema& alternatives, const std::string& path) {
    const SchemaFinder find = finder(path);
    if (const auto two = find_overlap(beside, alternatives, find, path + "/oneOf", strings_))
      fail_keyword(
          path, "oneOf",
          concat("is not supported where a value may satisfy two of its schemas, here numbers ",
                 two->first, " and ", two->second,
                 ": give them different types or values, or a required property "
                 "with a different const in each, or use anyOf"));
  }

  // Intersection of constraints without `nullable` and a schema.
  Node both(const Schema& s, const Schema& more, const std::string& path, int depth) {
    if (more.is_boolean()) return more == true ? constrained(s, path, depth + 1) : g_.choice({});
    if (!more.is_object()) fail_input("schema ", path, " must be an object, true or false");
    Schema own = constraints_of(more, path);
    const bool allows_null = own.erase("nullable") > 0 && !own.contains("enum") &&
                             !own.contains("const") && allows(nullptr, s, path);
    const Node merged_node = constrained(merged(s, own, path, g_.budget()), path, depth + 1);
    return allows_null ? g_.choice({merged_node, g_.literal("null")}) : merged_node;
  }
  bool allows(const Schema& value, const Schema& constraints, const std::string& path) {
    return !satisfying(Schema::array({value}), constraints, finder(path), path, strings_).empty();
  }

  // Removes $ref from constraints and returns its schema.
  Schema take_reference(Schema& s, const std::string& path) {
    if (!s["$ref"].is_string()) fail_keyword(path, "$ref", "must be a string");
    const auto to = s["$ref"].get<std::string>();
    s.erase("$ref");
    return found(to, path);
  }
  // Removes the first schema of allOf from constraints and returns it.
  Schema take_first_of_all(Schema& s, const std::string& path) {
    const Schema all = list(s, "allOf", path);
    s.erase("allOf");
    Schema rest = Schema::array();
    for (size_t i = 1; i < all.size(); ++i) rest.push_back(all[i]);
    if (!rest.empty()) s["allOf"] = std::move(rest);
    return all[0];
  }

  Schema list(const Schema& s, const char* name, const std::string& path) {
    if (!s[name].is_array() || s[name].empty())
      fail_keyword(path, name, "must be a non-empty array");
    return s[name];
  }

  Node of_types(const Schema& s, const std::string& path, int depth) {
    const std::vector<std::string> types = types_of(s, path);
    std::vector<Node> ways;
    for (const std::string& type : types) {
      if (type == "null") ways.push_back(g_.literal("null"));
      if (type == "boolean") ways.push_back(g_.choice({g_.literal("true"), g_.literal("false")}));
      if (type == "string") ways.push_back(string_schema_grammar(json_, s, path));
      if (type == "number" || type == "integer")
        ways.push_back(number_schema_grammar(json_, s, type, path));
      if (type == "array") ways.push_back(array_schema_grammar(*this, s, path, depth));
      if (type == "object") ways.push_back(object_schema_grammar(*this, s, path, depth));
    }
    return g_.choice(std::move(ways));
  }

  // --- enum and const ---

  // Values of enum or const in constraints, also in their $ref and allOf schemas.
  std::optional<Schema> listed_values(const Schema& s, const std::string& path) {
    if (s.contains("enum") && !s["enum"].is_array()) fail_keyword(path, "enum", "must be an array");
    return candidate_values(s, finder(path), CandidateSource::kLists, SIZE_MAX);
  }

  // Grammar of the values that satisfy all other keywords, too, including $ref and combining
  // keywords, which thus need not be mergeable.
  Node values(const Schema& all, const Schema& s, const std::string& path) {
    std::vector<Node> ways;
    for (const Schema& value : satisfying(all, s, finder(path), path, strings_))
      ways.push_back(g_.literal(value.dump()));
    return g_.choice(std::move(ways));
  }

  Grammar& g_;
  JsonGrammar& json_;
  StringCheck strings_;
  Schema root_;
  std::map<std::string, int32_t, std::less<>> references_;
  std::deque<std::pair<int32_t, std::string>> waiting_;
};

}  // namespace

Grammar::Node json_schema_grammar(Grammar& grammar, std::string_view schema) {
  JsonGrammar json(grammar);
  return json_schema_grammar(json, schema);
}

Grammar::Node json_schema_grammar(JsonGrammar& json, std::string_view schema) {
  const int depth = 4 * json.grammar().budget().limits().depth;
  Schema root = parse_strict_json<Schema>(schema, "the schema", {.depth = depth});
  return SchemaCompiler(json, std::move(root)).compile_root();
}

Grammar::Node json_object_grammar(Grammar& grammar) { return JsonGrammar(grammar).object(); }

}  // namespace trireme
