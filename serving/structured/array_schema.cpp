#include "serving/structured/array_schema.h"

#include <algorithm>
#include <bit>
#include <deque>
#include <map>

#include "serving/structured/schema_values.h"

namespace trireme {
namespace {

using Node = Grammar::Node;

constexpr int64_t kMaxCountedRules = 4000;
constexpr int64_t kMaxDistinctStates = 24'000;
constexpr size_t kMaxDistinctValues = 64;  // bits of a set of values
constexpr size_t kMaxSplitValues = 256;

class ArrayBuilder {
 public:
  ArrayBuilder(Subschemas& subschemas, const Schema& s, const std::string& path, int depth)
      : sub_(subschemas),
        json_(subschemas.json()),
        g_(json_.grammar()),
        s_(s),
        path_(path),
        depth_(depth),
        comma_(g_.sequence({g_.literal(","), json_.space()})) {}

  Node build() {
    min_ = count_of(s_, "minItems", 0, path_);
    max_ = count_of(s_, "maxItems", -1, path_);
    g_.budget().note_count(min_, concat("schema ", path_, ": \"minItems\""));
    const bool has_items = s_.contains("items"), has_prefix = s_.contains("prefixItems"),
               counts = s_.contains("contains");
    if (max_ >= 0 && min_ > max_) return g_.choice({});
    if (has_prefix) {
      if (!s_["prefixItems"].is_array() || s_["prefixItems"].empty())
        fail_keyword(path_, "prefixItems", "must be a non-empty array");
      for (const Schema& one : s_["prefixItems"]) schemas_.push_back(one);
    }
    places_ = std::ssize(schemas_);
    has_rest_ = has_items ? s_["items"] != false : !has_prefix || min_ > places_ || counts;
    if (!has_rest_) max_ = max_ < 0 ? places_ : std::min(max_, places_);
    if (max_ >= 0 && min_ > max_) return g_.choice({});
    schemas_.push_back(has_items ? s_["items"] : Schema(true));
    if (s_.contains("uniqueItems") && (max_ < 0 || max_ > 1) && !are_different())
      return brackets(distinct());
    if (counts) return brackets(counted());
    if (!has_items && !has_prefix && min_ == 0 && max_ < 0) return json_.array();
    return brackets(plain());
  }

 private:
  Node brackets(Node inside) {
    return g_.named(g_.sequence({g_.literal("["), json_.space(), inside, g_.literal("]")}));
  }
  // Index of an element's schema: its prefixItems entry, or the last one.
  size_t schema_of(int64_t element) const {
    return static_cast<size_t>(std::min(element, places_));
  }
  std::string path_of(size_t schema) const {
    return static_cast<int64_t>(schema) < places_ ? concat(path_, "/prefixItems/", schema)
                                                  : path_ + "/items";
  }
  Node element(size_t schema) {
    return spaced(sub_.compile(schemas_[schema], path_of(schema), depth_ + 1));
  }
  Node spaced(Node value) { return g_.named(g_.sequence({value, json_.space()})); }
  Node after_comma(int64_t elements, Node next) {
    return elements > 0 ? g_.sequence({comma_, next}) : next;
  }

  // --- items and prefixItems ---

  Node plain() {
    std::vector<Node> first;
    for (size_t i = 0; i < static_cast<size_t>(places_); ++i) first.push_back(element(i));
    const bool has_more = has_rest_ && (max_ < 0 || max_ > places_);
    const Node item = has_more ? element(static_cast<size_t>(places_)) : g_.choice({});
    if (places_ == 0) return g_.separated(item, comma_, min_, max_);
    const int64_t more_min = std::max<int64_t>(min_ - places_, 0);
    const int64_t more_max = max_ < 0 ? -1 : std::max<int64_t>(max_ - places_, 0);
    const Node more = g_.sequence({comma_, item});
    Node tail = g_.sequence(
        {g_.exactly(more, more_min), g_.repeat(more, 0, more_max < 0 ? -1 : more_max - more_min)});
    for (int64_t i = places_; i-- > 0;) {
      if (max_ >= 0 && i >= max_) {
        tail = g_.sequence({});
        continue;
      }
      const Node here = g_.sequence({after_comma(i, first[static_cast<size_t>(i)]), tail});
      tail = g_.named(i >= min_ ? g_.optional(here) : here);
    }
    return tail;
  }

  // --- contains ---

  struct Split {
    Node other = -1, match = -1;  // elements that are not counted, and matches
  };

  // exactly: elements that are not counted must not match.
  Split split(size_t schema, bool exactly) {
    const Schema &of = schemas_[schema], &contains = s_["contains"];
    const std::string where = path_of(schema), inside = path_ + "/contains";
    const bool matches_all = contains == true || contains == of || contains == Schema::object();
    if (exactly && !matches_all) {
      if (const auto values = sub_.list_values(of, where, kMaxSplitValues)) {
        std::vector<Node> others, matches;
        for (const Schema& value : *values)
          (sub_.satisfies(value, contains, inside) ? matches : others)
              .push_back(g_.literal(value.dump()));
        return {.other = spaced(g_.choice(std::move(others))),
                .match = spaced(g_.choice(std::move(matches)))};
      }
      if (!sub_.exclude_each_other(Schema::array({of, contains}), inside))
        fail_keyword(
            path_, "maxContains",
            "is not supported unless each element has few values, or its schema excludes contains");
      return {.other = element(schema), .match = g_.choice({})};
    }
    if (matches_all) {
      const Node all = element(schema);
      return {.other = exactly ? g_.choice({}) : all, .match = all};
    }
    const Schema both = of == true ? contains : Schema{{"allOf", Schema::array({of, contains})}};
    return {.other = element(schema), .match = spaced(sub_.compile(both, inside, depth_ + 1))};
  }

  Node counted() {
    const int64_t wanted = count_of(s_, "minContains", 1, path_);
    int64_t allowed = count_of(s_, "maxContains", -1, path_);
    if (max_ >= 0 && allowed >= max_) allowed = -1;
    if (allowed >= 0 && wanted > allowed) return g_.choice({});
    // Counts elements only as far as the bounds depend on them.
    const int64_t elements = max_ >= 0 ? max_ : std::max<int64_t>({places_, min_, 1});
    const int64_t matches = allowed >= 0 ? allowed : wanted;
    if ((elements + 1) * (matches + 1) > kMaxCountedRules)
      fail_keyword(path_, "contains",
                   concat("is not supported with ", elements, " elements and ", matches,
                          " matches: they make more than ", kMaxCountedRules, " combinations"));
    std::vector<Split> splits;
    for (size_t i = 0; i < schemas_.size(); ++i)
      splits.push_back(i < static_cast<size_t>(places_) || has_rest_ ? split(i, allowed >= 0)
                                                                     : Split{});
    std::vector<int32_t> rules(static_cast<size_t>((elements + 1) * (matches + 1)));
    for (int32_t& rule : rules) rule = g_.add_rule();
    const auto rule_of = [&](int64_t element, int64_t match) {
      return rules[static_cast<size_t>(std::min(element, elements) * (matches + 1) + match)];
    };
    for (int64_t at = 0; at <= elements; ++at)
      for (int64_t found = 0; found <= matches; ++found) {
        std::vector<Node> ways;
        if (at >= min_ && found >= wanted) ways.push_back(g_.sequence({}));
        if (max_ < 0 || at < max_) {
          const auto& [other, match] = splits[schema_of(at)];
          ways.push_back(g_.sequence({after_comma(at, other), g_.call(rule_of(at + 1, found))}));
          if (found < matches)
            ways.push_back(
                g_.sequence({after_comma(at, match), g_.call(rule_of(at + 1, found + 1))}));
        }
        g_.define(rule_of(at, found), g_.choice(std::move(ways)));
      }
    g_.budget().note_count(std::ssize(rules), concat("schema ", path_, ": \"contains\""));
    return g_.call(rule_of(0, 0));
  }

  // --- uniqueItems ---

  // True if the schemas of all elements exclude each other.
  bool are_different() {
    if (has_rest_ && (max_ < 0 || max_ > places_)) return false;
    Schema first = Schema::array();
    for (int64_t i = 0; i < max_; ++i) first.push_back(schemas_[static_cast<size_t>(i)]);
    return sub_.exclude_each_other(first, path_ + "/prefixItems");
  }

  // All known values, each once, and the indices of each schema's values.
  struct KnownValues {
    std::vector<Schema> all = {};
    std::vector<Node> nodes = {};
    std::vector<char> matches = {};            // satisfies contains
    std::vector<std::vector<size_t>> of = {};  // by schema: indices into `all`
  };

  KnownValues known_values() {
    KnownValues known;
    for (size_t i = 0; i < schemas_.size(); ++i) {
      std::vector<size_t>& own = known.of.emplace_back();
      if (max_ >= 0 && static_cast<int64_t>(i) >= max_) break;
      const auto values = sub_.list_values(schemas_[i], path_of(i), kMaxDistinctValues);
      if (!values || known.all.size() + values->size() > 2 * kMaxDistinctValues)
        fail_keyword(path_, "uniqueItems",
                     concat("is not supported unless elements have at most ", kMaxDistinctValues,
                            " known values: enum, const, true and false, null, or integers "
                            "between bounds"));
      for (const Schema& value : *values) {
        const auto at = std::ranges::find_if(
            known.all, [&](const Schema& one) { return are_equal(one, value); });
        own.push_back(static_cast<size_t>(at - known.all.begin()));
        if (at == known.all.end()) known.all.push_back(value);
      }
    }
    if (known.all.size() > kMaxDistinctValues)
      fail_keyword(path_, "uniqueItems",
                   concat("is not supported with more than ", kMaxDistinctValues, " values"));
    for (const Schema& value : known.all) {
      known.nodes.push_back(spaced(g_.literal(value.dump())));
      known.matches.push_back(s_.contains("contains") &&
                              sub_.satisfies(value, s_["contains"], path_ + "/contains"));
    }
    return known;
  }

  Node distinct() {
    const KnownValues known = known_values();
    const bool counts = s_.contains("contains");
    const int64_t wanted = counts ? count_of(s_, "minContains", 1, path_) : 0;
    const int64_t allowed = count_of(s_, "maxContains", -1, path_);
    const auto matches_of = [&](uint64_t set) {
      int64_t found = 0;
      for (size_t i = 0; i < known.all.size(); ++i)
        found += (set >> i & 1) != 0 && known.matches[i] != 0 ? 1 : 0;
      return found;
    };
    std::map<uint64_t, int32_t> rules;  // by the set of values used so far
    std::deque<uint64_t> waiting;
    const auto after_set = [&](uint64_t set) {
      if (std::popcount(set) == max_)
        return matches_of(set) >= wanted ? g_.sequence({}) : g_.choice({});
      const auto [at, is_new] = rules.try_emplace(set, -1);
      if (is_new) {
        at->second = g_.add_rule();
        waiting.push_back(set);
      }
      return g_.call(at->second);
    };
    const Node whole = after_set(0);
    int64_t states = 0;
    for (; !waiting.empty(); waiting.pop_front()) {
      const uint64_t set = waiting.front();
      const int64_t size = std::popcount(set), found = matches_of(set);
      std::vector<Node> ways;
      for (const size_t value : known.of[schema_of(size)]) {
        if ((set >> value & 1) != 0) continue;
        if (counts && known.matches[value] != 0 && allowed >= 0 && found >= allowed) continue;
        ways.push_back(g_.sequence({known.nodes[value], after_set(set | uint64_t{1} << value)}));
      }
      states += 4 + std::ssize(ways);
      if (states > kMaxDistinctStates)
        fail_keyword(path_, "uniqueItems",
                     concat("is not supported with ", known.all.size(),
                            " values: their combinations need more than ", kMaxDistinctStates,
                            " states; fewer values or a smaller maxItems need fewer"));
      const Node next = after_comma(size, g_.choice(std::move(ways)));
      g_.define(rules.at(set), size >= min_ && found >= wanted ? g_.optional(next) : next);
    }
    g_.budget().note_count(states, concat("schema ", path_, ": \"uniqueItems\""));
    return whole;
  }

  Subschemas& sub_;
  JsonGrammar& json_;
  Grammar& g_;
  const Schema& s_;
  const std::string& path_;
  const int depth_;
  const Node comma_;
  int64_t min_ = 0, max_ = -1, places_ = 0;
  bool has_rest_ = false;
  std::vector<Schema> schemas_;  // prefixItems, then the schema of all other elements
};

}  // namespace

Node array_schema_grammar(Subschemas& subschemas, const Schema& s, const std::string& path,
                          int depth) {
  return ArrayBuilder(subschemas, s, path, depth).build();
}

}  // namespace trireme
