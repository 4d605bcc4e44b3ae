// JSON Schema strings: minLength, maxLength, pattern and format, in any combination. For .cpp files
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

// s: constraints as returned by constraints_of() or merged() (schema_keywords.h). path: of the
// schema, for errors. With a pattern or format, maxLength limits the bytes of the string as written
// in JSON, without quotes, which excludes some strings with escapes or characters above ASCII.
// Strings with equal keywords share a node. InputError with path and keyword if a keyword is
// invalid or not supported.
Grammar::Node string_schema_grammar(JsonGrammar& json, const Schema& s, const std::string& path);

// Expressions without calls whose intersection, limited to max_bytes bytes with quotes (max_bytes
// < 0: unlimited), is the set of strings.
struct StringBodies {
  std::vector<Grammar::Node> all = {};
  int64_t max_bytes = -1;
};
// Returns at least one expression. InputError as string_schema_grammar(), and if minLength is above
// 1024.
StringBodies string_bodies(Grammar& grammar, const Schema& s, const std::string& path);

// Check of given strings against such constraints. The automaton of each pattern and format is
// built once and charged to the budget, which must outlive this object.
class StringCheck {
 public:
  explicit StringCheck(CompileBudget& budget) : budget_(budget) {}

  // True if a string satisfies these constraints; other keywords are ignored. maxLength counts
  // characters. Errors as string_schema_grammar().
  bool holds(const Schema& value, const Schema& s, const std::string& path);
  // Automaton of the strings that match a pattern, as JSON with quotes.
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
