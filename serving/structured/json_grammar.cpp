#include "serving/structured/json_grammar.h"

#include <algorithm>

#include "serving/structured/number_grammar.h"
#include "serving/structured/regex_grammar.h"

namespace trireme {
namespace {

using Node = Grammar::Node;

constexpr int64_t kMaxSpaces = 20;

}  // namespace

Node JsonGrammar::shared(int32_t& rule, Node (JsonGrammar::*make)()) {
  if (rule < 0) {
    rule = grammar_.add_rule();
    const int32_t made = rule;  // a rule may call itself
    grammar_.define(made, (this->*make)());
  }
  return grammar_.call(rule);
}

Node JsonGrammar::shared(const std::string& key, const std::function<Node()>& make) {
  const auto known = shared_.find(key);
  return known != shared_.end() ? known->second : shared_.emplace(key, make()).first->second;
}

Node JsonGrammar::space() { return shared(space_, &JsonGrammar::make_space); }
Node JsonGrammar::string() { return shared(string_, &JsonGrammar::make_string); }
Node JsonGrammar::long_char() { return shared(long_char_, &JsonGrammar::make_long_char); }
Node JsonGrammar::value() { return shared(value_, &JsonGrammar::make_value); }
Node JsonGrammar::object() { return shared(object_, &JsonGrammar::make_object); }
Node JsonGrammar::array() { return shared(array_, &JsonGrammar::make_array); }

Node JsonGrammar::number(const NumberBounds& bounds) {
  if (bounds.none()) return shared(number_, &JsonGrammar::make_number);
  return grammar_.named(bounded_number(grammar_, bounds));
}

Node JsonGrammar::integer(const NumberBounds& bounds) {
  if (bounds.none()) return shared(integer_, &JsonGrammar::make_integer);
  return grammar_.named(bounded_integer(grammar_, bounds));
}

Node JsonGrammar::make_space() {
  Grammar& g = grammar_;
  return g.choice({g.sequence({}), g.literal(" "),
                   g.sequence({g.literal("\n"), g.repeat(g.literal(" "), 0, kMaxSpaces)})});
}

// An escape, or a character above ASCII.
Node JsonGrammar::make_long_char() {
  Grammar& g = grammar_;
  return g.choice({g.chars(complement({{0, 0x7F}})),
                   regex_grammar(g,
                                 R"(\\(["\\/bfnrt]|u([0-9a-ce-fA-CE-F][0-9a-fA-F]{3})"
                                 R"(|[dD][0-7][0-9a-fA-F]{2})"
                                 R"(|[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})))",
                                 RegexUse::kWholeText)});
}

Node JsonGrammar::any_char() {
  const CharSet ascii = without({{0x20, 0x7F}}, {{'"', '"'}, {'\\', '\\'}});
  return grammar_.choice({grammar_.chars(ascii), make_long_char()});
}

Node JsonGrammar::make_string() {
  // Inline instead of a rule: characters are most of a text, and take one state this way.
  Grammar& g = grammar_;
  return g.sequence({g.literal("\""), g.repeat(any_char(), 0, -1), g.literal("\"")});
}

Node JsonGrammar::make_integer() {
  return regex_grammar(grammar_, "-?(0|[1-9][0-9]{0,17})", RegexUse::kWholeText);
}

Node JsonGrammar::make_number() {
  return regex_grammar(grammar_, R"(-?(0|[1-9][0-9]{0,17})(\.[0-9]{1,17})?([eE][+-]?[0-9]{1,2})?)",
                       RegexUse::kWholeText);
}

Node JsonGrammar::make_value() {
  Grammar& g = grammar_;
  return g.choice({object(), array(), string(), number({}), g.literal("true"), g.literal("false"),
                   g.literal("null")});
}

Node JsonGrammar::make_object() {
  Grammar& g = grammar_;
  const Node member = g.sequence({string(), space(), g.literal(":"), space(), value(), space()});
  return g.sequence({g.literal("{"), space(),
                     g.separated(member, g.sequence({g.literal(","), space()}), 0, -1),
                     g.literal("}")});
}

Node JsonGrammar::make_array() {
  Grammar& g = grammar_;
  const Node element = g.sequence({value(), space()});
  return g.sequence({g.literal("["), space(),
                     g.separated(element, g.sequence({g.literal(","), space()}), 0, -1),
                     g.literal("]")});
}

// --- keys except given ones ---

Node JsonGrammar::plain_key(const std::vector<std::string>& except) {
  std::vector<std::u32string> names;
  for (const std::string& name : except) {
    std::u32string& chars = names.emplace_back();
    for (size_t at = 0; at < name.size();) chars += static_cast<char32_t>(next_char(name, at));
  }
  std::ranges::sort(names);
  const auto [first, last] = std::ranges::unique(names);
  names.erase(first, last);
  return grammar_.sequence(
      {grammar_.literal("\""), key_except(names, 0, names.size(), 0), grammar_.literal("\"")});
}

// Continuations of a key that is not one of `names`, after its first `depth` characters, which only
// names[begin, end) start with.
Node JsonGrammar::key_except(const std::vector<std::u32string>& names, size_t begin, size_t end,
                             size_t depth) {
  Grammar& g = grammar_;
  const CharSet plain = complement({{0, 0x1F}, {'"', '"'}, {'\\', '\\'}});
  if (begin == end) return g.repeat(g.chars(plain), 0, -1);
  const bool is_name = names[begin].size() == depth;
  std::vector<Node> ways;
  if (!is_name) ways.push_back(g.sequence({}));
  CharSet taken;
  for (size_t i = begin + (is_name ? 1 : 0); i < end;) {
    const auto c = static_cast<uint32_t>(names[i][depth]);
    size_t next = i;
    while (next < end && static_cast<uint32_t>(names[next][depth]) == c) ++next;
    taken.push_back({c, c});
    if (contains(plain, c)) {
      // With a single name left, this does not nest calls of this function.
      ways.push_back(g.sequence({g.chars({{c, c}}), key_except(names, i, next, depth + 1)}));
    }
    i = next;
  }
  ways.push_back(
      g.sequence({g.chars(without(plain, make_char_set(taken))), g.repeat(g.chars(plain), 0, -1)}));
  return g.choice(std::move(ways));
}

}  // namespace trireme
