// Objects of JSON Schema: properties, required, additionalProperties, minProperties, maxProperties,
// propertyNames, patternProperties and dependentRequired. For .cpp files only (it includes the JSON
// library).
#pragma once

#include <string>

#include "serving/structured/subschemas.h"

namespace trireme {

// s: as constraints_of() or merged() returns it.
//
// Members with known names come in one order: properties, then names that are required only, or
// named by dependentRequired, or listed by propertyNames. There is a rule for each of them and each
// number of members before it, as far as bounds depend on that number, and each set of later
// members that those before require or exclude. Additional members follow. To reach minProperties,
// additional members count if the sums of their names' bytes differ modulo 5, which tells names
// apart with few states; others may be there, too.
//
// Names that match a pattern of patternProperties match no other of its patterns, unless they are
// known; without additionalProperties there are none that match no pattern.
//
// InputError naming path and keyword for anything else, and for too many of these rules.
Grammar::Node object_schema_grammar(Subschemas& subschemas, const Schema& s,
                                    const std::string& path, int depth);

}  // namespace trireme
