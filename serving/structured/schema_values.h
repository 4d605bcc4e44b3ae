// Filter of the values of enum and const by a schema's other keywords. For .cpp files only (it
// includes the JSON library).
#pragma once

#include <string>
#include <vector>

#include "serving/structured/schema_keywords.h"
#include "serving/structured/string_schema.h"

namespace trireme {

// True if two values are equal by JSON Schema: the order of object members does not matter.
bool are_equal(const Schema& a, const Schema& b);
// True if an element of the array `values` is equal to `value`.
bool contains_value(const Schema& values, const Schema& value);

// Returns the elements of an array that satisfy constraints, exactly. constraints: as returned by
// constraints_of() or merged(). find: resolves references. strings: shared by the values of all
// schemas. InputError with path and keyword if that cannot be decided.
std::vector<Schema> satisfying(const Schema& values, const Schema& constraints,
                               const SchemaFinder& find, const std::string& path,
                               StringCheck& strings);

}  // namespace trireme
