#include "serving/structured/json_schema_grammar.h"

#include <algorithm>
#include <deque>
#include <map>

#include "engine/io/strict_json.h"
#include "serving/structured/schema_keywords.h"
#include "serving/structured/schema_overlap.h"
#include "serving/structured/schema_values.h"
#include "serving/structured/string_schema.h"

namespace trireme {
namespace {

using Node = Grammar::Node;

constexpr size_t kMostNameBytes = 128;  // of properties beside which others may be

class SchemaCompiler {
 public:
  SchemaCompiler(JsonGrammar& json, Schema root)
      : g_(json.grammar()), json_(json), strings_(g_.budget()), root_(std::move(root)) {}

  Node compile() {
    const Node whole = reference("#", "#");
    // Schemas that are referred to are made one after the other: their references may be circles.
    for (; !waiting_.empty(); waiting_.pop_front()) {
      const auto [rule, path] = waiting_.front();
      g_.define(rule, schema(found(path, path), path, 0));
    }
    return whole;
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

  // What a reference such as "#/$defs/name" leads to.
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
        fail_keyword(where, "$ref", concat("\"", path.substr(0, 80), "\" leads to nothing"));
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

  Node schema(const Schema& given, const std::string& path, int depth) {
    g_.budget().check_depth(depth);
    if (given.is_boolean()) return given == true ? json_.value() : g_.choice({});
    if (!given.is_object()) fail_input("schema ", path, " must be an object, true or false");
    return constrained(constraints_of(given, path), path, depth);
  }

  // References, and what combines schemas, until only keywords of types are left.
  Node constrained(Schema s, const std::string& path, int depth) {
    g_.budget().check_depth(depth);
    if (s.contains("nullable")) {
      if (s["nullable"] != true) fail_keyword(path, "nullable", "must be true or false");
      s.erase("nullable");
      // A list of values says itself whether null is one.
      if (s.contains("enum") ? s["enum"].is_array() && !holds_null(s["enum"])
                             : s.contains("const") && !s["const"].is_null())
        return constrained(std::move(s), path, depth + 1);
      return g_.choice({constrained(std::move(s), path, depth + 1), g_.literal("null")});
    }
    if (s.contains("enum") || s.contains("const")) return values(s, path);
    if (s.contains("$ref")) {
      if (!s["$ref"].is_string()) fail_keyword(path, "$ref", "must be a string");
      const auto to = s["$ref"].get<std::string>();
      if (s.size() == 1) return reference(to, path);
      s.erase("$ref");
      return both(s, found(to, path), path, depth);
    }
    if (s.contains("allOf")) {
      const Schema all = list(s, "allOf", path);
      s.erase("allOf");
      if (s.empty() && all.size() == 1) return schema(all[0], path + "/allOf/0", depth + 1);
      Schema rest = Schema::array();
      for (size_t i = 1; i < all.size(); ++i) rest.push_back(all[i]);
      if (!rest.empty()) s["allOf"] = std::move(rest);
      return both(s, all[0], path, depth);
    }
    for (const char* name : {"anyOf", "oneOf"}) {
      if (!s.contains(name)) continue;
      const Schema alternatives = list(s, name, path);
      s.erase(name);
      if (name[0] == 'o') check_exclusive(s, alternatives, path);
      std::vector<Node> ways;
      for (size_t i = 0; i < alternatives.size(); ++i) {
        const std::string where = concat(path, "/", name, "/", i);
        ways.push_back(s.empty() ? schema(alternatives[i], where, depth + 1)
                                 : both(s, alternatives[i], where, depth));
      }
      return g_.choice(std::move(ways));
    }
    return of_types(s, path, depth);
  }

  // A text of one schema of oneOf may satisfy no other.
  void check_exclusive(const Schema& beside, const Schema& alternatives, const std::string& path) {
    const auto find = [&](const std::string& to) -> const Schema& { return found(to, path); };
    if (const auto two = find_overlap(beside, alternatives, find, path + "/oneOf", g_.budget()))
      fail_keyword(path, "oneOf",
                   concat("is not supported where a value may satisfy two of its schemas, as here ",
                          two->first, " and ", two->second,
                          ": tell them apart by their types, by values, or by a required property ",
                          "with a const of its own in each, or say anyOf"));
  }

  static bool holds_null(const Schema& values) {
    return std::any_of(values.begin(), values.end(), [](const Schema& v) { return v.is_null(); });
  }

  Node both(const Schema& s, const Schema& more, const std::string& path, int depth) {
    if (more.is_boolean()) return more == true ? constrained(s, path, depth + 1) : g_.choice({});
    if (!more.is_object()) fail_input("schema ", path, " must be an object, true or false");
    return constrained(merged(s, constraints_of(more, path), path, g_.budget()), path, depth + 1);
  }

  Schema list(const Schema& s, const char* name, const std::string& path) {
    if (!s[name].is_array() || s[name].empty())
      fail_keyword(path, name, "must be an array that is not empty");
    return s[name];
  }

  Node of_types(const Schema& s, const std::string& path, int depth) {
    const std::vector<std::string> types = types_of(s, path);
    std::vector<Node> ways;
    for (const std::string& type : types) {
      if (type == "null") ways.push_back(g_.literal("null"));
      if (type == "boolean") ways.push_back(g_.choice({g_.literal("true"), g_.literal("false")}));
      if (type == "string") ways.push_back(string_schema_grammar(json_, s, path));
      if (type == "number" || type == "integer") ways.push_back(number(s, type, path));
      if (type == "array") ways.push_back(array(s, path, depth));
      if (type == "object") ways.push_back(object(s, path, depth));
    }
    return g_.choice(std::move(ways));
  }

  // --- enum and const
  // -----------------------------------------------------------------------------------

  // Those that satisfy the other keywords, too: references and what combines schemas among them,
  // which need not merge.
  Node values(const Schema& s, const std::string& path) {
    const Schema all = s.contains("enum") ? s["enum"] : Schema::array({s["const"]});
    if (!all.is_array()) fail_keyword(path, "enum", "must be an array");
    const SchemaFinder find = [&](const std::string& to) -> const Schema& {
      return found(to, path);
    };
    Schema others = s;
    others.erase("enum");
    std::vector<Node> ways;
    for (const Schema& value : satisfying(all, others, find, path, strings_))
      ways.push_back(g_.literal(value.dump()));
    return g_.choice(std::move(ways));
  }

  // --- numbers
  // ------------------------------------------------------------------------------------------

  std::string bound(const Schema& s, const char* name, const std::string& path) {
    if (!s.contains(name)) return "";
    if (!s[name].is_number()) fail_keyword(path, name, "must be a number");
    return s[name].dump();
  }

  Node number(const Schema& s, const std::string& type, const std::string& path) {
    if (s.contains("multipleOf") && !(type == "integer" && s["multipleOf"] == 1))
      fail_keyword(path, "multipleOf", "is not supported");
    NumberBounds b{.least = bound(s, "minimum", path), .most = bound(s, "maximum", path)};
    const std::string above = bound(s, "exclusiveMinimum", path);
    const std::string below = bound(s, "exclusiveMaximum", path);
    if (!above.empty() && (b.least.empty() || s["exclusiveMinimum"] >= s["minimum"]))
      b.least = above, b.least_excluded = true;
    if (!below.empty() && (b.most.empty() || s["exclusiveMaximum"] <= s["maximum"]))
      b.most = below, b.most_excluded = true;
    return type == "integer" ? json_.integer(b) : json_.number(b);
  }

  // --- arrays
  // -------------------------------------------------------------------------------------------

  Node array(const Schema& s, const std::string& path, int depth) {
    const bool has_items = s.contains("items"), has_prefix = s.contains("prefixItems");
    const int64_t least = count_of(s, "minItems", 0, path);
    const int64_t most = count_of(s, "maxItems", -1, path);
    g_.budget().note_count(least, concat("schema ", path, ": \"minItems\""));
    if (!has_items && !has_prefix && least == 0 && most < 0) return json_.array();
    if (most >= 0 && least > most) return g_.choice({});
    std::vector<Node> first;
    if (has_prefix) {
      const Schema prefix = list(s, "prefixItems", path);
      for (size_t i = 0; i < prefix.size(); ++i)
        first.push_back(element(schema(prefix[i], concat(path, "/prefixItems/", i), depth + 1)));
    }
    const int64_t places = std::ssize(first);
    const bool no_more =
        (has_items && s["items"] == false) || (!has_items && has_prefix && least <= places);
    const Node item = no_more || (most >= 0 && most <= places) ? g_.choice({})
                      : has_items ? element(schema(s["items"], path + "/items", depth + 1))
                                  : element(json_.value());
    const Node comma = g_.sequence({g_.literal(","), json_.space()});
    const int64_t more_least = std::max<int64_t>(least - places, 0);
    const int64_t more_most = most < 0 ? -1 : std::max<int64_t>(most - places, 0);
    const Node more = g_.sequence({comma, item});
    Node tail = g_.sequence({g_.exactly(more, more_least),
                             g_.repeat(more, 0, more_most < 0 ? -1 : more_most - more_least)});
    if (places == 0) {
      tail = g_.separated(item, comma, least, most);
    } else {
      for (int64_t i = places; i-- > 0;) {
        const Node place = first[static_cast<size_t>(i)];
        if (most >= 0 && i >= most) {
          tail = g_.sequence({});
          continue;
        }
        const Node here = g_.sequence({i > 0 ? g_.sequence({comma, place}) : place, tail});
        tail = g_.named(i >= least ? g_.optional(here) : here);
      }
    }
    return g_.named(g_.sequence({g_.literal("["), json_.space(), tail, g_.literal("]")}));
  }
  Node element(Node value) { return g_.named(g_.sequence({value, json_.space()})); }

  // --- objects
  // ------------------------------------------------------------------------------------------

  struct Member {
    Node node;
    bool required;
  };

  std::vector<Member> members(const Schema& s, const std::string& path, int depth) {
    Schema properties = s.contains("properties") ? s["properties"] : Schema::object();
    if (!properties.is_object()) fail_keyword(path, "properties", "must be an object");
    const Schema required = s.contains("required") ? s["required"] : Schema::array();
    if (!required.is_array()) fail_keyword(path, "required", "must be an array of strings");
    std::map<std::string, bool, std::less<>> is_required;
    for (const Schema& name : required) {
      if (!name.is_string()) fail_keyword(path, "required", "must be an array of strings");
      is_required[name.get<std::string>()] = true;
    }
    std::vector<Member> out;
    const auto add = [&](const std::string& name, Node value) {
      out.push_back({g_.named(g_.sequence({g_.literal(Schema(name).dump()), json_.space(),
                                           g_.literal(":"), json_.space(), value, json_.space()})),
                     is_required.erase(name) > 0});
    };
    for (const auto& [name, of] : properties.items())
      add(name, schema(of, concat(path, "/properties/", name.substr(0, 64)), depth + 1));
    // Those that are only said to be required are what additional ones are.
    const Schema others =
        s.contains("additionalProperties") ? s["additionalProperties"] : Schema(true);
    for (const auto& [name, yes] : std::map(is_required))
      add(name, schema(others, path + "/additionalProperties", depth + 1));
    return out;
  }

  Node object(const Schema& s, const std::string& path, int depth) {
    const bool names_others = s.contains("additionalProperties");
    if (!s.contains("properties") && !s.contains("required") && !names_others &&
        !s.contains("minProperties") && !s.contains("maxProperties"))
      return json_.object();
    const std::vector<Member> all = members(s, path, depth);
    const bool open = names_others ? s["additionalProperties"] != false
                                   : all.empty() && !s.contains("properties");
    const PropertyCounts counts = property_counts(s, all, open, path);
    const Node comma = g_.sequence({g_.literal(","), json_.space()});
    Node tail = g_.sequence({}), head = counts.wants_one ? g_.choice({}) : g_.sequence({});
    if (open && counts.max_others != 0) {
      const Node other = additional(s, path, depth);
      const auto others = [&](int64_t most) {
        return g_.named(g_.repeat(g_.sequence({comma, other}), 0, most));
      };
      tail = others(counts.max_others);
      const Node rest = counts.max_others < 0 ? tail : others(counts.max_others - 1);
      const Node some = g_.sequence({other, rest});
      head = g_.named(counts.wants_one ? some : g_.optional(some));
    }
    // tail: of the members from here on, behind others; head: the same where none is before.
    for (size_t i = all.size(); i-- > 0;) {
      const Node here = g_.sequence({all[i].node, tail});
      head = g_.named(all[i].required ? here : g_.choice({here, head}));
      const Node behind = g_.sequence({comma, all[i].node});
      tail = g_.named(g_.sequence({all[i].required ? behind : g_.optional(behind), tail}));
    }
    return g_.named(g_.sequence({g_.literal("{"), json_.space(), head, g_.literal("}")}));
  }

  Node additional(const Schema& s, const std::string& path, int depth) {
    std::vector<std::string> names;
    for (const char* from : {"properties", "required"}) {
      if (!s.contains(from)) continue;
      for (const auto& [name, value] : s[from].items())
        names.push_back(from[0] == 'p' ? name : value.get<std::string>());
    }
    for (const std::string& name : names)
      if (name.size() > kMostNameBytes)
        fail_keyword(
            path, "additionalProperties",
            concat("is not supported beside names of more than ", kMostNameBytes, " bytes"));
    const Node key = names.empty() ? json_.string() : json_.plain_key(names);
    const Node value =
        s.contains("additionalProperties")
            ? schema(s["additionalProperties"], path + "/additionalProperties", depth + 1)
            : json_.value();
    return g_.named(
        g_.sequence({key, json_.space(), g_.literal(":"), json_.space(), value, json_.space()}));
  }

  struct PropertyCounts {
    int64_t max_others = -1;  // additional ones; -1: without bound
    bool wants_one = false;   // one at least, and none is required
  };

  // Those with names of their own are not counted: the bounds must follow from what is required,
  // or leave room for all.
  PropertyCounts property_counts(const Schema& s, const std::vector<Member>& all, bool open,
                                 const std::string& path) {
    const int64_t least = count_of(s, "minProperties", 0, path);
    const int64_t most = count_of(s, "maxProperties", -1, path);
    const int64_t required = std::ranges::count_if(all, &Member::required);
    if (least > std::max<int64_t>(required, 1))
      fail_keyword(path, "minProperties",
                   "is not supported where it is more than 1 and more than are required");
    if (most >= 0 && most < std::ssize(all))
      fail_keyword(path, "maxProperties", "is not supported where more have a name");
    return {.max_others = !open || most < 0 ? -1 : most - std::ssize(all),
            .wants_one = least > required};
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
  return SchemaCompiler(json, std::move(root)).compile();
}

Grammar::Node json_object_grammar(Grammar& grammar) { return JsonGrammar(grammar).object(); }

}  // namespace trireme
