// JSON Schema arrays: items, prefixItems, minItems, maxItems, uniqueItems and contains. For .cpp
// files only (it includes the JSON library).
#pragma once

#include <string>

#include "serving/structured/subschemas.h"

namespace trireme {

// s: constraints as returned by constraints_of() or merged() (schema_keywords.h). path: of the
// schema, for errors. depth: its nesting level.
//
// contains: one rule for each pair of two counts, the elements so far and the matches so far.
// Counts stop at the largest bound that they are compared with. Without maxContains, elements that
// are not counted may match, too, so that no complement is needed. With maxContains, it must be
// known whether an element matches: its values are listed, or `contains` accepts all of them, or
// its schema and that of `contains` exclude each other.
//
// uniqueItems: one rule per set of values used so far, if the elements have at most 64 known values
// in all. No rules are needed if the schemas of all elements exclude each other; the array is then
// no longer than prefixItems.
//
// InputError with path and keyword for anything else, and for too many rules.
Grammar::Node array_schema_grammar(Subschemas& subschemas, const Schema& s, const std::string& path,
                                   int depth);

}  // namespace trireme
