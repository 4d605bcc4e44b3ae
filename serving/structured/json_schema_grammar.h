// JSON Schema (2020-12, and earlier drafts where they mean the same) as a grammar whose every text
// is valid. Not every valid value has a text: properties come in the schema's order, there are no
// additional properties where a schema with properties does not mention them, names of additional
// ones have no escapes, and numbers have the digits of JsonGrammar.
//
// type, enum and const (serving/structured/schema_values.h), objects
// (serving/structured/object_schema.h), arrays (serving/structured/array_schema.h), strings
// (serving/structured/string_schema.h), numbers (serving/structured/number_schema.h), anyOf, oneOf
// whose schemas exclude each other (serving/structured/schema_overlap.h), allOf, $ref within the
// schema, nullable. Annotations and keywords that allow everything are left out
// (serving/structured/schema_keywords.h). InputError names any other keyword, and its path.
#pragma once

#include <string_view>

#include "serving/structured/json_grammar.h"

namespace trireme {

// The schema is a text of JSON.
Grammar::Node json_schema_grammar(Grammar& grammar, std::string_view schema);
// Several schemas of a grammar share the rules of JSON.
Grammar::Node json_schema_grammar(JsonGrammar& json, std::string_view schema);
// Any object, as {"type": "json_object"} asks for.
Grammar::Node json_object_grammar(Grammar& grammar);

}  // namespace trireme
