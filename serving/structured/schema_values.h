// Values of enum and const beside other keywords: which of them satisfy those. For .cpp files only
// (it includes the JSON library).
#pragma once

#include <string>
#include <vector>

#include "serving/structured/schema_keywords.h"
#include "serving/structured/string_schema.h"

namespace trireme {

// Whether two values are one for JSON Schema: members of objects have no order.
bool are_equal(const Schema& a, const Schema& b);
bool contains_value(const Schema& values, const Schema& value);

// Values of an array that satisfy constraints, exactly, as constraints_of() or merged() returns
// them. find: resolves references; strings: shared by the values of all schemas. InputError names
// path and keyword where that is not known.
std::vector<Schema> satisfying(const Schema& values, const Schema& constraints,
                               const SchemaFinder& find, const std::string& path,
                               StringCheck& strings);

}  // namespace trireme
