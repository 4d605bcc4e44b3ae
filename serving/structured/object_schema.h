// JSON Schema objects: properties, required, additionalProperties, minProperties, maxProperties,
// propertyNames, patternProperties and dependentRequired. For .cpp files only (it includes the JSON
// library).
#pragma once

#include <string>

#include "serving/structured/subschemas.h"

namespace trireme {

// s: constraints as returned by constraints_of() or merged() (schema_keywords.h). path: of the
// schema, for errors. depth: its nesting level.
//
// Members with known names come in a fixed order: properties, then names that appear only in
// required, dependentRequired or propertyNames. Such a member has one rule for each combination of
//  - the number of members before it, as far as bounds depend on that number;
//  - the set of later members that the earlier ones require or exclude.
// Additional members follow. If minProperties requires two or more of them, they count toward it
// only if the byte sums of their names differ modulo 5, because few states can distinguish these.
// Further ones are allowed, but count toward maxProperties only.
//
// An additional name that matches a pattern of patternProperties matches no other pattern. In a
// schema with properties, required or patternProperties, but without additionalProperties, every
// additional name matches a pattern.
//
// InputError with path and keyword for anything else, and for too many rules.
Grammar::Node object_schema_grammar(Subschemas& subschemas, const Schema& s,
                                    const std::string& path, int depth);

}  // namespace trireme
