// JSON Schema numbers: minimum, maximum, exclusiveMinimum, exclusiveMaximum and multipleOf. For
// .cpp files only (it includes the JSON library).
#pragma once

#include <string>
#include <vector>

#include "serving/structured/json_grammar.h"
#include "serving/structured/multiples.h"
#include "serving/structured/schema_keywords.h"

namespace trireme {

// s: constraints as returned by constraints_of() or merged() (schema_keywords.h). type: "integer"
// or "number". path: of the schema, for errors. With multipleOf, numbers have no exponent, and up
// to 15 digits, which a double holds exactly, unless a bound has more. For integers this excludes
// factors of which every integer is a multiple. InputError if a bound or factor is invalid or not
// supported.
Grammar::Node number_schema_grammar(JsonGrammar& json, const Schema& s, const std::string& type,
                                    const std::string& path);

// Bounds of a schema, and the factors of its multipleOf, which merged() collects in an array; none
// without multipleOf. InputError with path and keyword for an invalid value.
NumberBounds number_bounds(const Schema& s, const std::string& path);
std::vector<Factor> factors_of(const Schema& s, const std::string& path);

}  // namespace trireme
