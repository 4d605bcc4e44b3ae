// Finite sets that the values of a schema are from. For .cpp files only (it includes the JSON
// library).
#pragma once

#include <optional>

#include "serving/structured/schema_keywords.h"

namespace trireme {

enum class CandidateSource {
  kLists,  // enum and const, within $ref and allOf too
  kTypes,  // also booleans, null and integers between bounds, and the schemas of anyOf and oneOf
};

// An array of at most max_count values that has each value of the schema; not all of them satisfy
// it. Absent: none is found in a bounded search.
std::optional<Schema> candidate_values(const Schema& schema, const SchemaFinder& find,
                                       CandidateSource source, size_t max_count);

}  // namespace trireme
