#include "serving/structured/written_grammar.h"

#include <algorithm>
#include <map>
#include <set>

#include "serving/structured/regex_grammar.h"

namespace trireme {
namespace {

using Node = Grammar::Node;

constexpr int64_t kMaxGrammarRepeats = 10'000;

bool is_name_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '_';
}

class GrammarParser {
 public:
  GrammarParser(Grammar& grammar, std::string_view text) : g_(grammar), text_(text) {}

  Node parse() {
    for (skip(); at_ < text_.size(); skip()) {
      const std::string name = take_name();
      skip();
      if (!take("::=")) fail("expected ::= after the name of a rule");
      const int32_t rule = rule_of(name);
      if (!defined_.insert(name).second) fail(concat("the rule ", name, " is defined twice"));
      g_.define(rule, choice());
      skip();
      if (at_ < text_.size() && !at_rule())
        fail("expected a rule, NAME ::= ..., or the end of the grammar");
    }
    for (const auto& [name, rule] : rules_)
      if (!defined_.contains(name)) fail_input("grammar: the rule ", name, " is not defined");
    if (!defined_.contains("root")) fail_input("grammar: there is no rule root");
    return g_.call(rule_of("root"));
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    const auto line = std::ranges::count(text_.substr(0, at_), '\n') + 1;
    fail_input("grammar, line ", line, ": ", what);
  }
  void skip() {
    for (; at_ < text_.size(); ++at_) {
      if (text_[at_] == '#')
        while (at_ + 1 < text_.size() && text_[at_ + 1] != '\n') ++at_;
      else if (text_[at_] != ' ' && text_[at_] != '\t' && text_[at_] != '\n' && text_[at_] != '\r')
        return;
    }
  }
  bool take(std::string_view what) {
    if (text_.substr(at_, what.size()) != what) return false;
    at_ += what.size();
    return true;
  }
  std::string take_name() {
    const size_t begin = at_;
    while (at_ < text_.size() && is_name_char(text_[at_])) ++at_;
    if (at_ == begin) fail("expected the name of a rule");
    return std::string(text_.substr(begin, at_ - begin));
  }
  // True at the start of the next rule.
  bool at_rule() {
    const size_t before = at_;
    while (at_ < text_.size() && is_name_char(text_[at_])) ++at_;
    const bool named = at_ > before;
    skip();
    const bool is_rule = named && text_.substr(at_, 3) == "::=";
    at_ = before;
    return is_rule;
  }
  int32_t rule_of(const std::string& name) {
    const auto [at, is_new] = rules_.try_emplace(name, -1);
    if (is_new) at->second = g_.add_rule();
    return at->second;
  }

  Node choice() {
    g_.budget().check_depth(++depth_);
    std::vector<Node> ways;
    do ways.push_back(sequence());
    while (take("|"));
    --depth_;
    return g_.choice(std::move(ways));
  }

  Node sequence() {
    std::vector<Node> parts;
    for (skip(); at_ < text_.size() && text_[at_] != '|' && text_[at_] != ')'; skip()) {
      if (is_name_char(text_[at_]) && at_rule()) break;
      parts.push_back(repeated(item()));
    }
    return g_.sequence(std::move(parts));
  }

  Node item() {
    if (take("(")) {
      const Node inner = choice();
      if (!take(")")) fail("unmatched (");
      return inner;
    }
    if (take("\"")) return literal();
    if (take("[")) return char_class();
    if (take(".")) return g_.chars({{0, kLastChar}});
    if (is_name_char(text_[at_])) return g_.call(rule_of(take_name()));
    fail(concat("\"", text_.substr(at_, 1), "\" is not allowed here"));
  }

  Node repeated(Node part) {
    int depth = depth_;  // repetitions of repetitions nest, too
    for (skip(); at_ < text_.size(); skip()) {
      if (take("*"))
        part = g_.repeat(part, 0, -1);
      else if (take("+"))
        part = g_.repeat(part, 1, -1);
      else if (take("?"))
        part = g_.repeat(part, 0, 1);
      else if (take("{"))
        part = counted(part);
      else
        return part;
      g_.budget().check_depth(++depth);
    }
    return part;
  }
  Node counted(Node part) {
    skip();
    const int64_t least = number();
    int64_t most = least;
    skip();
    if (take(",")) {
      skip();
      most = at_ < text_.size() && text_[at_] == '}' ? -1 : number();
      skip();
    }
    if (!take("}")) fail("unmatched {");
    if (most >= 0 && most < least) fail("the minimum of a quantifier is above its maximum");
    return g_.repeat(part, least, most);
  }
  int64_t number() {
    int64_t value = 0;
    const size_t begin = at_;
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
      value = value * 10 + (text_[at_] - '0');
      if (value > kMaxGrammarRepeats) fail("a number of repetitions is above 10000");
    }
    if (at_ == begin) fail("expected a number");
    return value;
  }

  // Character of a literal or a class, possibly escaped.
  uint32_t character() {
    if (at_ == text_.size()) fail("the grammar ends within a literal or a class");
    if (!take("\\")) {
      if (text_[at_] == '\n') fail("a line ends within a literal or a class");
      return next_char(text_, at_);
    }
    if (at_ == text_.size()) fail("the grammar ends within an escape");
    const char c = text_[at_++];
    switch (c) {
      case 'n': return '\n';
      case 'r': return '\r';
      case 't': return '\t';
      case 'x': return hex(2);
      case 'u': return hex(4);
      case 'U': return hex(8);
      default: break;
    }
    if (std::string_view("\\\"[]-^").find(c) == std::string_view::npos)
      fail(concat("the escape \\", c, " is not supported; supported: n r t \\ \" [ ] - ^ x u U"));
    return static_cast<uint32_t>(c);
  }
  uint32_t hex(int digits) {
    uint32_t value = 0;
    for (int i = 0; i < digits; ++i, ++at_) {
      const char c = at_ < text_.size() ? text_[at_] : ' ';
      const int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit < 0) fail("expected a hexadecimal digit");
      value = value << 4 | static_cast<uint32_t>(digit);
    }
    if (value > kLastChar || (value >= 0xD800 && value < 0xE000))
      fail("no Unicode character has this number");
    return value;
  }
  Node literal() {
    std::vector<Node> parts;
    while (!take("\"")) {
      const uint32_t c = character();
      parts.push_back(g_.chars({{c, c}}));
    }
    return g_.sequence(std::move(parts));
  }
  Node char_class() {
    const bool negated = take("^");
    CharSet set;
    while (!take("]")) {
      const uint32_t first = character();
      uint32_t last = first;
      if (at_ + 1 < text_.size() && text_[at_] == '-' && text_[at_ + 1] != ']') {
        ++at_;
        last = character();
      }
      if (last < first) fail("the bounds of a range are in the wrong order");
      set.push_back({first, last});
      g_.budget().take_bytes(sizeof(CharRange));
    }
    set = make_char_set(set);
    return g_.chars(negated ? complement(set) : set);
  }

  Grammar& g_;
  std::string_view text_;
  size_t at_ = 0;
  int depth_ = 0;
  std::map<std::string, int32_t> rules_;
  std::set<std::string> defined_;
};

}  // namespace

Grammar::Node written_grammar(Grammar& grammar, std::string_view text) {
  return GrammarParser(grammar, text).parse();
}

}  // namespace trireme
