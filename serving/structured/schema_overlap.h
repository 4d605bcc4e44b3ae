// Whether a value can satisfy two of several schemas, such as those of oneOf. For .cpp
// files only (it includes the JSON library).
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "serving/structured/schema_keywords.h"
#include "serving/structured/string_schema.h"

namespace trireme {

// Two of the schemas of which it is not known that no text made of the first
// (json_schema_grammar.h) satisfies the second; absent: there are none. What tells two apart: their
// types, values, bounds of numbers, lengths and numbers of elements, a pattern or factor that a
// value does not match (but no format, which may be an annotation for others), a property that one
// requires and the other has not, or one that both have, that one requires, and whose schemas are
// told apart in the same way. schemas: an array; beside: constraints of all of them; path: of the
// schemas, for messages. InputError as json_schema_grammar().
std::optional<std::pair<size_t, size_t>> find_overlap(const Schema& beside, const Schema& schemas,
                                                      const SchemaFinder& find,
                                                      const std::string& path,
                                                      StringCheck& strings);

}  // namespace trireme
