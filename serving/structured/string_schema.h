// Strings of JSON Schema: minLength, maxLength, pattern and format, also together. For .cpp files
// only (it includes the JSON library).
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "serving/structured/automaton_state.h"
#include "serving/structured/json_grammar.h"
#include "serving/structured/schema_keywords.h"

namespace trireme {

// A pattern or format: keyword and value.
using StringExpression = std::pair<std::string, std::string>;

// s: as constraints_of() or merged() returns it. A string that has a maxLength beside a pattern or
// format has at most so many bytes as JSON, so that some with escapes or characters above ASCII are
// left out. Strings of equal keywords share a node. InputError names path and keyword.
Grammar::Node string_schema_grammar(JsonGrammar& json, const Schema& s, const std::string& path);

// Expressions without calls of rules: the strings are their common texts of at most max_bytes bytes
// (max_bytes < 0: without bound). There is one at least.
struct StringBodies {
  std::vector<Grammar::Node> all = {};
  int64_t max_bytes = -1;
};
StringBodies string_bodies(Grammar& grammar, const Schema& s, const std::string& path);

// Check of strings against such constraints. The automaton of each pattern and format is built
// once, charged to the budget, which must outlive this object.
class StringCheck {
 public:
  explicit StringCheck(CompileBudget& budget) : budget_(budget) {}

  // Whether a string satisfies them. Errors as string_schema_grammar().
  bool holds(const Schema& value, const Schema& s, const std::string& path);
  // The texts of JSON, with their quotes, of strings that match a pattern.
  const FiniteAutomaton& pattern_automaton(const std::string& pattern, const std::string& path) {
    return automaton_of({"pattern", pattern}, path);
  }
  CompileBudget& budget() { return budget_; }

 private:
  const std::vector<AutomatonState>& automaton_of(const StringExpression& expression,
                                                  const std::string& path);
  CompileBudget& budget_;
  std::map<StringExpression, std::vector<AutomatonState>> automata_;
};

}  // namespace trireme
