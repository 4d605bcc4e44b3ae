#include "serving/structured/grammar.h"

#include <array>

namespace trireme {

Grammar::Node Grammar::add(Expression expression) {
  budget_.take_bytes(static_cast<int64_t>(sizeof(Expression) + expression.bytes.size() +
                                          expression.chars.size() * sizeof(CharRange) +
                                          expression.parts.size() * sizeof(Node)));
  expressions_.push_back(std::move(expression));
  return static_cast<Node>(expressions_.size()) - 1;
}

Grammar::Node Grammar::literal(std::string_view bytes) {
  return add({.kind = Kind::kLiteral, .bytes = std::string(bytes)});
}

Grammar::Node Grammar::chars(const CharSet& set) {
  return add({.kind = Kind::kChars, .chars = set});
}

Grammar::Node Grammar::json_chars(const CharSet& set) {
  static const CharSet escaped = make_char_set({{0, 0x1F}, {'"', '"'}, {'\\', '\\'}});
  constexpr std::array<std::pair<uint32_t, const char*>, 7> kShort = {{{'"', "\\\""},
                                                                       {'\\', "\\\\"},
                                                                       {'\b', "\\b"},
                                                                       {'\f', "\\f"},
                                                                       {'\n', "\\n"},
                                                                       {'\r', "\\r"},
                                                                       {'\t', "\\t"}}};
  std::vector<Node> parts = {chars(without(set, escaped))};
  for (const auto& [c, spelled] : kShort)
    if (contains(set, c)) parts.push_back(literal(spelled));
  for (uint32_t c = 0; c < 0x20; ++c) {
    if (!contains(set, c)) continue;
    constexpr char kHex[] = "0123456789abcdef";
    parts.push_back(literal(std::string("\\u00") + kHex[c >> 4] + kHex[c & 15]));
  }
  return parts.size() == 1 ? parts[0] : choice(std::move(parts));
}

Grammar::Node Grammar::sequence(std::vector<Node> parts) {
  if (parts.size() == 1) return parts[0];
  return add({.kind = Kind::kSequence, .parts = std::move(parts)});
}

Grammar::Node Grammar::choice(std::vector<Node> parts) {
  if (parts.size() == 1) return parts[0];
  return add({.kind = Kind::kChoice, .parts = std::move(parts)});
}

Grammar::Node Grammar::repeat(Node part, int64_t least, int64_t most) {
  if (least == 1 && most == 1) return part;
  return add({.kind = Kind::kRepeat, .parts = {part}, .least = least, .most = most});
}

Grammar::Node Grammar::exactly(Node part, int64_t count) {
  constexpr int64_t kBlock = 64;
  if (count < 2 * kBlock) return repeat(part, count, count);
  const Node block = named(repeat(part, kBlock, kBlock));
  return sequence({exactly(block, count / kBlock), repeat(part, count % kBlock, count % kBlock)});
}

Grammar::Node Grammar::separated(Node part, Node separator, int64_t least, int64_t most) {
  if (most == 0) return sequence({});
  const int64_t more_min = least > 0 ? least - 1 : 0;
  const Node next = sequence({separator, part});
  const Node some = sequence(
      {part, exactly(next, more_min), repeat(next, 0, most < 0 ? most : most - 1 - more_min)});
  return least > 0 ? some : optional(some);
}

Grammar::Node Grammar::call(int32_t rule) { return add({.kind = Kind::kCall, .rule = rule}); }

Grammar::Node Grammar::named(Node body) {
  const int32_t rule = add_rule();
  define(rule, body);
  return call(rule);
}

Grammar::Node Grammar::named_all(std::vector<Node> bodies, int64_t max_bytes,
                                 std::vector<FiniteAutomaton> automata) {
  for (const FiniteAutomaton& automaton : automata) {
    size_t edges = 0;
    for (const AutomatonState& state : automaton) edges += state.edges.size();
    budget_.take_bytes(static_cast<int64_t>(automaton.size() * sizeof(AutomatonState) +
                                            edges * sizeof(AutomatonState::Edge)));
  }
  const int32_t rule = add_rule();
  rules_[static_cast<size_t>(rule)] = {std::move(bodies), max_bytes, std::move(automata)};
  return call(rule);
}

}  // namespace trireme
