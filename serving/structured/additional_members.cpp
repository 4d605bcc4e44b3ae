#include "serving/structured/additional_members.h"

#include <algorithm>
#include <bit>

namespace trireme {
namespace {

using Node = Grammar::Node;

constexpr size_t kMaxNameBytes = 128;  // of additional members
// Modulus of byte sums: names with different sums are certainly different.
constexpr size_t kNameClasses = 5;
constexpr int64_t kMaxDifferentNames = 4, kMaxDifferentMembers = 64;

// Accepts the texts with this byte sum.
FiniteAutomaton sum_automaton(size_t sum) {
  FiniteAutomaton states(kNameClasses);
  states[sum].final = true;
  for (size_t s = 0; s < kNameClasses; ++s)
    for (size_t byte = 0; byte < 256; ++byte)
      states[s].edges.push_back({static_cast<uint8_t>(byte), static_cast<uint8_t>(byte), false,
                                 static_cast<int32_t>((s + byte) % kNameClasses)});
  return states;
}

}  // namespace

AdditionalMembers::AdditionalMembers(Subschemas& subschemas, const Schema& s,
                                     std::vector<std::string> named, std::vector<MemberKind> kinds,
                                     const std::string& path, int depth)
    : sub_(subschemas),
      json_(subschemas.json()),
      g_(json_.grammar()),
      s_(s),
      named_(std::move(named)),
      kinds_(std::move(kinds)),
      path_(path),
      depth_(depth),
      comma_(g_.sequence({g_.literal(","), json_.space()})) {
  for (const std::string& name : named_)
    if (name.size() > kMaxNameBytes)
      fail_keyword(path_, "additionalProperties",
                   concat("is not supported together with property names of more than ",
                          kMaxNameBytes, " bytes"));
}

Node AdditionalMembers::members(int64_t least, int64_t most, bool is_first) {
  const auto [at, is_new] = known_.try_emplace({least, most, is_first}, -1);
  if (is_new) at->second = make_members(least, most, is_first);
  return at->second;
}

Node AdditionalMembers::make_members(int64_t least, int64_t most, bool is_first) {
  if (most >= 0 && least > most) return g_.choice({});
  if (most == 0) return g_.sequence({});
  if (least > 1) return different_members(least, most, is_first);
  const Node rest =
      g_.named(g_.repeat(g_.sequence({comma_, any_member()}), 0, most < 0 ? -1 : most - 1));
  const Node some = g_.sequence({after_comma(is_first, any_member()), rest});
  return g_.named(least > 0 ? some : g_.optional(some));
}

// One rule per set of byte sums used so far, and per number of members if that is bounded.
Node AdditionalMembers::different_members(int64_t least, int64_t most, bool is_first) {
  if (least > kMaxDifferentNames || most > kMaxDifferentMembers)
    fail_keyword(path_, most > kMaxDifferentMembers ? "maxProperties" : "minProperties",
                 concat("is not supported with more than ", kMaxDifferentNames,
                        " required additional properties, or with more than ", kMaxDifferentMembers,
                        " allowed ones where 2 or more are required"));
  g_.budget().note_count(1, concat("schema ", path_, ": \"minProperties\""));
  std::map<std::pair<uint64_t, int64_t>, Node> known;  // by set of sums and number of members
  const auto make = [&](const auto& self, uint64_t sums, int64_t count) -> Node {
    if (most >= 0 && count > most) return g_.choice({});
    if (std::popcount(sums) == least) return members(0, most < 0 ? -1 : most - count, false);
    const auto [at, is_new] = known.try_emplace({sums, most < 0 ? 0 : count}, -1);
    if (!is_new) return g_.call(at->second);
    at->second = g_.add_rule();
    const int32_t rule = at->second;
    std::vector<Node> ways;
    for (size_t sum = 0; sum < kNameClasses; ++sum) {
      const Node next = self(self, sums | uint64_t{1} << sum, count + 1);
      ways.push_back(g_.sequence({after_comma(is_first && sums == 0, member_of_class(sum)), next}));
    }
    g_.define(rule, g_.choice(std::move(ways)));
    return g_.call(rule);
  };
  return make(make, 0, 0);
}

Node AdditionalMembers::member(Node key_node, Node value) {
  return g_.named(
      g_.sequence({key_node, json_.space(), g_.literal(":"), json_.space(), value, json_.space()}));
}

Node AdditionalMembers::any_member() {
  if (any_) return *any_;
  std::vector<Node> ways;
  ways.reserve(kinds_.size());
  for (const MemberKind& kind : kinds_) ways.push_back(member(key(kind), kind.value));
  any_ = g_.choice(std::move(ways));
  return *any_;
}

Node AdditionalMembers::member_of_class(size_t sum) {
  if (of_class_.empty())
    for (size_t i = 0; i < kNameClasses; ++i) {
      std::vector<Node> ways;
      ways.reserve(kinds_.size());
      for (const MemberKind& kind : kinds_)
        ways.push_back(member(key_of_class(kind, i), kind.value));
      of_class_.push_back(g_.choice(std::move(ways)));
    }
  return of_class_[sum];
}

bool AdditionalMembers::has_constraints(const MemberKind& kind) const {
  return kind.has_pattern || s_.contains("propertyNames");
}

Schema AdditionalMembers::names_of(const MemberKind& kind) const {
  Schema all = Schema::array({{{"type", "string"}}});
  if (kind.has_pattern) all.push_back({{"pattern", kind.pattern}});
  if (s_.contains("propertyNames")) all.push_back(s_["propertyNames"]);
  return {{"allOf", all}};
}

Node AdditionalMembers::key(const MemberKind& kind) {
  if (kind.automata.empty()) {
    if (!has_constraints(kind)) return named_.empty() ? json_.string() : json_.plain_key(named_);
    if (named_.empty()) return sub_.compile(names_of(kind), path_of(kind), depth_ + 1);
  }
  StringBodies names = bodies_of(kind);
  return g_.named_all(std::move(names.all), names.max_bytes, kind.automata);
}

Node AdditionalMembers::key_of_class(const MemberKind& kind, size_t sum) {
  StringBodies names = bodies_of(kind);
  std::vector<FiniteAutomaton> automata = kind.automata;
  automata.push_back(sum_automaton(sum));
  return g_.named_all(std::move(names.all), names.max_bytes, std::move(automata));
}

// Expressions of the names, for names with string constraints only.
StringBodies AdditionalMembers::bodies_of(const MemberKind& kind) {
  const std::string where = path_of(kind);
  StringBodies bodies;
  if (has_constraints(kind)) {
    const Schema names = sub_.flattened(names_of(kind), where);
    for (const auto& [keyword, value] : names.items())
      if (keyword != "type" && keyword != "pattern" && keyword != "format" &&
          keyword != "minLength" && keyword != "maxLength")
        fail_keyword(path_, "propertyNames",
                     concat("is not supported with \"", keyword.substr(0, 64),
                            "\" beside other properties, patternProperties, or minProperties "
                            "above 1"));
    if (types_of(names, where) != std::vector<std::string>{"string"})
      fail_keyword(where, "type", "must allow strings");
    bodies = string_bodies(g_, names, where);
  }
  if (bodies.all.empty() || !named_.empty()) bodies.all.push_back(json_.plain_key(named_));
  return bodies;
}

}  // namespace trireme
