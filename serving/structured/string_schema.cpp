#include "serving/structured/string_schema.h"

#include <algorithm>

#include "serving/structured/regex_grammar.h"
#include "serving/structured/rule_automaton.h"
#include "serving/structured/string_formats.h"

namespace trireme {
namespace {

using Node = Grammar::Node;

// Each character multiplies the states of the expression.
constexpr int64_t kMaxMinLengthOfExpressions = 1024;

// Bytes of JSON; more than any value in a schema has.
constexpr int64_t kMaxValueBytes = int64_t{1} << 30;

std::vector<StringExpression> expressions_of(const Schema& s) {
  std::vector<StringExpression> all;
  for (const char* keyword : {"pattern", "format"}) {
    if (!s.contains(keyword)) continue;
    const Schema& given = s[keyword];
    for (const Schema& one : given.is_array() ? given : Schema::array({given}))
      all.emplace_back(keyword, one.get<std::string>());
  }
  return all;
}

// Strings that match a pattern, with their quotes.
Node pattern_grammar(Grammar& g, const std::string& pattern) {
  const Node quote = g.literal("\"");
  return g.sequence({quote, regex_grammar(g, pattern, RegexUse::kJsonString), quote});
}

// Strings of a format or pattern, with their quotes.
Node expression_grammar(Grammar& g, const StringExpression& expression, const std::string& path) {
  const auto& [keyword, text] = expression;
  try {
    if (keyword == "pattern") return pattern_grammar(g, text);
    const Node quote = g.literal("\"");
    return g.sequence(
        {quote, regex_grammar(g, format_expression(text), RegexUse::kWholeText), quote});
  } catch (const InputError& error) {
    fail_keyword(path, keyword.c_str(), concat("cannot be compiled: ", error.what()));
  }
}

int64_t characters_of(const std::string& text) {
  return std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80; });
}

// True if an automaton without calls and counted loops accepts a text.
bool takes(const std::vector<AutomatonState>& states, const std::string& text) {
  size_t at = 0;
  for (const char c : text) {
    const auto byte = static_cast<uint8_t>(c);
    const auto& edges = states[at].edges;
    const auto edge = std::ranges::find_if(
        edges, [&](const auto& e) { return e.first <= byte && byte <= e.last; });
    if (edge == edges.end()) return false;
    at = static_cast<size_t>(edge->target);
  }
  return states[at].final;
}

Node make_string(JsonGrammar& json, const Schema& s, const std::string& path) {
  Grammar& g = json.grammar();
  const int64_t least = count_of(s, "minLength", 0, path),
                most = count_of(s, "maxLength", -1, path);
  if (most >= 0 && least > most) return g.choice({});
  const Node quote = g.literal("\"");
  g.budget().note_count(least, concat("schema ", path, ": \"minLength\""));
  if (!s.contains("pattern") && !s.contains("format")) {
    if (least == 0 && most < 0) return json.string();
    // Characters of several bytes share a rule if each turn needs its own state; counted turns must
    // not begin with a call.
    const CharSet ascii = without({{0x20, 0x7F}}, {{'"', '"'}, {'\\', '\\'}});
    const Node one = g.choice({g.chars(ascii), json.long_char()});
    const bool counted = most < 0 || most - least >= g.budget().limits().min_counted;
    const Node more = g.repeat(counted ? json.any_char() : one, 0, most < 0 ? -1 : most - least);
    return g.named(g.sequence({quote, g.exactly(one, least), more, quote}));
  }
  StringBodies bodies = string_bodies(g, s, path);
  if (bodies.all.size() == 1 && most < 0) return g.named(bodies.all[0]);
  g.budget().note_count(
      1, concat("schema ", path, ": \"", s.contains("pattern") ? "pattern" : "format", "\""));
  return g.named_all(std::move(bodies.all), bodies.max_bytes);
}

}  // namespace

Node string_schema_grammar(JsonGrammar& json, const Schema& s, const std::string& path) {
  Schema key = Schema::array();
  for (const char* keyword : {"minLength", "maxLength", "pattern", "format"})
    key.push_back(s.value(keyword, Schema()));
  return json.shared(key.dump(), [&] { return make_string(json, s, path); });
}

StringBodies string_bodies(Grammar& g, const Schema& s, const std::string& path) {
  const int64_t least = count_of(s, "minLength", 0, path),
                most = count_of(s, "maxLength", -1, path);
  if (least > kMaxMinLengthOfExpressions)
    fail_keyword(path, "minLength",
                 concat("is larger than ", kMaxMinLengthOfExpressions,
                        ", which is not supported together with pattern or format"));
  StringBodies bodies{.max_bytes = most < 0 ? -1 : most + 2};
  for (const StringExpression& one : expressions_of(s))
    bodies.all.push_back(expression_grammar(g, one, path));
  if (least > 0 || bodies.all.empty()) {
    const Node one = g.json_chars({{0, kLastChar}}), quote = g.literal("\"");
    bodies.all.push_back(g.sequence({quote, g.repeat(one, least, -1), quote}));
  }
  return bodies;
}

bool StringCheck::holds(const Schema& value, const Schema& s, const std::string& path) {
  const int64_t length = characters_of(value.get<std::string>());
  if (length < count_of(s, "minLength", 0, path)) return false;
  if (s.contains("maxLength") && length > count_of(s, "maxLength", -1, path)) return false;
  const std::string text = value.dump();
  return std::ranges::all_of(expressions_of(s), [&](const StringExpression& expression) {
    return takes(automaton_of(expression, path), text);
  });
}

const std::vector<AutomatonState>& StringCheck::automaton_of(const StringExpression& expression,
                                                             const std::string& path) {
  const auto known = automata_.find(expression);
  if (known != automata_.end()) return known->second;
  Grammar g(budget_);
  // Given values may have any form of their format, not only the generated ones.
  const Node body = expression.first == "format"
                        ? pattern_grammar(g, concat("^(", format_check(expression.second), ")$"))
                        : expression_grammar(g, expression, path);
  // A byte limit, so that no loop is counted.
  return automata_.emplace(expression, rule_automaton(g, {{body}, kMaxValueBytes}, budget_))
      .first->second;
}

}  // namespace trireme
