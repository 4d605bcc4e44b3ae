// Strings of JSON Schema: minLength, maxLength, pattern and format, also together. For .cpp files
// only (it includes the JSON library).
#pragma once

#include <string>

#include "serving/structured/json_grammar.h"
#include "serving/structured/schema_keywords.h"

namespace trireme {

// s: as constraints_of() or merged() returns it. A string that has a maxLength beside a pattern or
// format has at most so many bytes as JSON, so that some with escapes or characters above ASCII are
// left out. InputError names path and keyword.
Grammar::Node string_schema_grammar(JsonGrammar& json, const Schema& s, const std::string& path);
// Whether a string satisfies those keywords.
bool satisfies_string_schema(const Schema& value, const Schema& s, const std::string& path,
                             CompileBudget& budget);

}  // namespace trireme
