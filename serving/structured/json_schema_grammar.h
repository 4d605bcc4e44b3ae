// Grammar of a JSON Schema (2020-12, and earlier drafts where they mean the same). Every text of
// the grammar is valid, but not every valid value has a text. In particular:
//  - properties are in the schema's order;
//  - a schema with properties, required or patternProperties has additional properties only if it
//    has additionalProperties; their names have no escapes if other properties are named;
//  - numbers have the digits of JsonGrammar, and strings of a format its usual forms.
// The headers named below state further restrictions.
//
// Supported: type, enum and const (serving/structured/schema_values.h), objects
// (serving/structured/object_schema.h), arrays (serving/structured/array_schema.h), strings
// (serving/structured/string_schema.h), numbers (serving/structured/number_schema.h), anyOf, oneOf
// whose schemas exclude each other (serving/structured/schema_overlap.h), allOf, $ref within the
// schema, nullable. Annotations and keywords that allow everything are ignored
// (serving/structured/schema_keywords.h). InputError with keyword and path for any other keyword,
// for an invalid schema, and above the limits of CompileBudget.
#pragma once

#include <string_view>

#include "serving/structured/json_grammar.h"

namespace trireme {

// schema: JSON text.
Grammar::Node json_schema_grammar(Grammar& grammar, std::string_view schema);
// The same, for several schemas of a grammar, which share the rules of JSON.
Grammar::Node json_schema_grammar(JsonGrammar& json, std::string_view schema);
// Grammar of any object, for {"type": "json_object"}.
Grammar::Node json_object_grammar(Grammar& grammar);

}  // namespace trireme
