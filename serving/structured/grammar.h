// Grammars as expressions over characters and rules: the common form of regular expressions,
// schemas, lists of choices and written grammars, and the input of PushdownAutomaton.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "serving/structured/automaton_state.h"
#include "serving/structured/char_set.h"
#include "serving/structured/compile_budget.h"

namespace trireme {

class Grammar {
 public:
  using Node = int32_t;  // index of an expression
  enum class Kind : uint8_t {
    kLiteral,   // bytes
    kChars,     // one character of a set
    kSequence,  // of parts; without parts: the empty text
    kChoice,    // one of the parts; without parts: no text at all
    kRepeat,    // of parts[0], least to most times
    kCall,      // call of a rule
  };
  struct Expression {
    Kind kind = Kind::kSequence;
    std::string bytes = {};
    CharSet chars = {};
    std::vector<Node> parts = {};
    int64_t least = 0, most = 0;  // most < 0: unbounded
    int32_t rule = 0;
  };

  // Expressions are charged to the budget, which must outlive this object.
  explicit Grammar(CompileBudget& budget) : budget_(budget) {}

  Node literal(std::string_view bytes);
  Node chars(const CharSet& set);
  // One character as written in a JSON string: `"`, `\` and control characters are escaped.
  Node json_chars(const CharSet& set);
  Node sequence(std::vector<Node> parts);
  Node choice(std::vector<Node> parts);
  Node repeat(Node part, int64_t least, int64_t most);
  Node optional(Node part) { return repeat(part, 0, 1); }
  // Same as repeat(part, count, count), in O(log count) expressions: rules of 64 turns, nested.
  Node exactly(Node part, int64_t count);
  // `part` repeated least to most times, with a separator before all but the first.
  Node separated(Node part, Node separator, int64_t least, int64_t most);

  // Rules may call each other before they are defined.
  int32_t add_rule() {
    rules_.emplace_back();
    return static_cast<int32_t>(rules_.size()) - 1;
  }
  void define(int32_t rule, Node body) { rules_[static_cast<size_t>(rule)] = {{body}, -1}; }
  Node call(int32_t rule);
  Node named(Node body);  // call of a new rule
  // Call of a new rule: the intersection of at least one expression without calls and of automata
  // without calls and counters. Its texts have at most max_bytes bytes (max_bytes < 0: unlimited).
  Node named_all(std::vector<Node> bodies, int64_t max_bytes,
                 std::vector<FiniteAutomaton> automata = {});

  const Expression& at(Node node) const { return expressions_[static_cast<size_t>(node)]; }
  struct Rule {
    std::vector<Node> bodies = {};  // the rule is their intersection; empty: not defined
    int64_t max_bytes = -1;         // maximum bytes of a text; < 0: unlimited
    std::vector<FiniteAutomaton> automata = {};  // part of the intersection
  };
  const std::vector<Rule>& rules() const { return rules_; }
  CompileBudget& budget() { return budget_; }

 private:
  Node add(Expression expression);
  CompileBudget& budget_;
  std::vector<Expression> expressions_;
  std::vector<Rule> rules_;
};

}  // namespace trireme
