// Search for values that satisfy two of several schemas, such as those of oneOf. For .cpp files
// only (it includes the JSON library).
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "serving/structured/schema_keywords.h"
#include "serving/structured/string_schema.h"

namespace trireme {

// First two schemas that may overlap: a text generated for the first (json_schema_grammar.h) may
// satisfy the second. nullopt: no two of them can. Two schemas are distinguished by their types,
// values, bounds of numbers, lengths and numbers of elements; by a pattern or factor that a value
// does not match (but not by a format, which may be an annotation to others); by a property that
// one requires and the other cannot have; or by a property that both have, that one requires, and
// whose schemas are distinguished in the same way. schemas: an array; beside: constraints that
// apply to all of them; path: of the schemas, for errors. InputError as json_schema_grammar().
std::optional<std::pair<size_t, size_t>> find_overlap(const Schema& beside, const Schema& schemas,
                                                      const SchemaFinder& find,
                                                      const std::string& path,
                                                      StringCheck& strings);

}  // namespace trireme
