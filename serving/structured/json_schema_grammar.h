// JSON Schema (2020-12, and what of earlier drafts means the same) as a grammar whose every text is
// valid. Not every valid value has a text: properties come in the schema's order,
// `additionalProperties` that a schema with properties says nothing of are not made, names of
// additional ones have no escapes, and numbers have the digits of JsonGrammar.
//
// type, enum, const (those of their values that satisfy the rest), properties, required,
// additionalProperties, minProperties and maxProperties where they follow from what is required,
// items, prefixItems, minItems, maxItems, strings (serving/structured/string_schema.h), minimum,
// maximum and the exclusive ones, anyOf, oneOf whose schemas exclude each other
// (serving/structured/schema_overlap.h), allOf, $ref within the schema, nullable. Annotations and
// keywords that allow everything are left out (serving/structured/schema_keywords.h). InputError
// names any other keyword, and its path.
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
