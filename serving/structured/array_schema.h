// JSON Schema arrays: items, prefixItems, minItems, maxItems, uniqueItems and contains. For .cpp
// files only (it includes the JSON library).
#pragma once

#include <string>

#include "serving/structured/subschemas.h"

namespace trireme {

// s: constraints as returned by constraints_of() or merged().
//
// contains: one rule per number of elements so far and of matches so far. Without maxContains,
// elements that are not counted may match, too, so that no complement is needed. With maxContains,
// an element's matches must be known: its values are listed, or its schema and that of `contains`
// exclude each other.
//
// uniqueItems: one rule per set of values used so far, if every element has few possible values. No
// rules are needed if the schemas of all elements exclude each other.
//
// InputError with path and keyword for anything else, and for too many rules.
Grammar::Node array_schema_grammar(Subschemas& subschemas, const Schema& s, const std::string& path,
                                   int depth);

}  // namespace trireme
