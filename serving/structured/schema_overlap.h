// Overlap search: finds two schemas, such as two of oneOf, that one value may satisfy. For .cpp
// files only (it includes the JSON library).
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "serving/structured/schema_keywords.h"
#include "serving/structured/string_schema.h"

namespace trireme {

// Returns the first two schemas that may overlap: a text generated for the first
// (json_schema_grammar.h) may satisfy the second. The indices may be in any order. An overlap is
// also assumed if the search exceeds its limits. nullopt: no two of them overlap. These distinguish
// two schemas:
//  - types, values, bounds of numbers, lengths, numbers of elements;
//  - a pattern or factor that the values of enum or const do not match (not a format, which may be
//    an annotation);
//  - a property that one requires and the other cannot have;
//  - a property that both have and one requires, if its schemas are distinguished in these ways.
// schemas: an array; beside: constraints that apply to all of them (constraints_of()); path: of the
// schemas, for errors. InputError as json_schema_grammar().
std::optional<std::pair<size_t, size_t>> find_overlap(const Schema& beside, const Schema& schemas,
                                                      const SchemaFinder& find,
                                                      const std::string& path,
                                                      StringCheck& strings);

}  // namespace trireme
