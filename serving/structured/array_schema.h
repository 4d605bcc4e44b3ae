// Arrays of JSON Schema: items, prefixItems, minItems, maxItems, uniqueItems and contains. For .cpp
// files only (it includes the JSON library).
#pragma once

#include <string>

#include "serving/structured/subschemas.h"

namespace trireme {

// s: as constraints_of() or merged() returns it.
//
// contains: one rule for each number of elements and of matches so far. Without maxContains an
// element that is not counted may match as well, so that no complement is needed; with it, elements
// are told apart by their values, or by schemas that exclude each other.
//
// uniqueItems: one rule for each set of values that have been written, where each element is of a
// few known values; nothing is needed where the schemas of all elements exclude each other.
//
// InputError naming path and keyword for anything else, and for too many of these rules.
Grammar::Node array_schema_grammar(Subschemas& subschemas, const Schema& s, const std::string& path,
                                   int depth);

}  // namespace trireme
