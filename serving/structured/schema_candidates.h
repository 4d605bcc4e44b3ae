// Finite sets that contain all values of a schema. For .cpp files only (it includes the JSON
// library).
#pragma once

#include <optional>

#include "serving/structured/schema_keywords.h"

namespace trireme {

enum class CandidateSource {
  kLists,  // enum and const, also within $ref and allOf
  kTypes,  // also booleans, null, integers between bounds, and the schemas of anyOf and oneOf
};

// Returns an array of at most max_count values, not counting the null that the keyword `nullable`
// adds, that contains every value of the schema, possibly with others and with duplicates. nullopt:
// a bounded search found no such array.
std::optional<Schema> candidate_values(const Schema& schema, const SchemaFinder& find,
                                       CandidateSource source, size_t max_count);

}  // namespace trireme
