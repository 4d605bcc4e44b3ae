// Interface of the schema compiler for the subschemas of arrays and objects.
// For .cpp files only (it includes the JSON library).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "serving/structured/json_grammar.h"
#include "serving/structured/schema_keywords.h"

namespace trireme {

// path: location of the schema, for errors; depth: its nesting level. Schemas are passed as the
// user wrote them, before normalization. InputError as for json_schema_grammar().
class Subschemas {
 public:
  virtual ~Subschemas() = default;
  virtual JsonGrammar& json() = 0;
  // Grammar of the values of a schema.
  virtual Grammar::Node compile(const Schema& schema, const std::string& path, int depth) = 0;
  // All values of a schema, without duplicates: at most max_count, not counting the null that the
  // keyword `nullable` adds. nullopt: there are more, or they are not known.
  virtual std::optional<std::vector<Schema>> list_values(const Schema& schema,
                                                         const std::string& path,
                                                         size_t max_count) = 0;
  // True if a value satisfies a schema, exactly.
  virtual bool satisfies(const Schema& value, const Schema& schema, const std::string& path) = 0;
  // schemas: an array. True if it is certain that no value satisfies two of them.
  virtual bool exclude_each_other(const Schema& schemas, const std::string& path) = 0;
  // Automaton of the strings that match a pattern, as JSON with quotes.
  virtual const FiniteAutomaton& pattern_automaton(const std::string& pattern,
                                                   const std::string& path) = 0;
  // Constraints of a schema, with references and allOf resolved.
  virtual Schema flattened(const Schema& schema, const std::string& path) = 0;
};

}  // namespace trireme
