// Normalized constraints of schemas, and intersections of them. For .cpp files only (it includes
// the JSON library).
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "serving/structured/compile_budget.h"

namespace trireme {

using Schema = nlohmann::ordered_json;

// Looks up the schema of a reference such as "#/$defs/name".
using SchemaFinder = std::function<const Schema&(const std::string& reference)>;

// Constraints of a schema, without annotations (title, default, an unknown `format`) and keywords
// whose value allows everything. path: of the schema, for errors. Other spellings are rewritten:
// tuples in `items`, `exclusiveMinimum: true`, `dependencies` and `dependentSchemas` that only
// require names, and, in a schema without references and combining keywords, unevaluatedProperties
// and unevaluatedItems. minContains is set whenever contains is. InputError with path and keyword
// for an unsupported keyword.
Schema constraints_of(const Schema& schema, const std::string& path);
// Constraints of the values that satisfy both; a and b as returned by constraints_of(). Several
// values of pattern, format or multipleOf become an array of them. InputError if unsupported.
Schema merged(const Schema& a, const Schema& b, const std::string& path, CompileBudget& budget);
// Types allowed by constraints: "string", "integer", ... ("number" excludes "integer"); without
// `type`, all types that the other keywords refer to.
std::vector<std::string> types_of(const Schema& constraints, const std::string& path);

// Value of a counting keyword such as minLength or maxItems; `otherwise` if absent. A maximum
// beyond any text is reduced. InputError if it is not a count, or if a minimum is too large.
int64_t count_of(const Schema& s, const char* keyword, int64_t otherwise, const std::string& path);

// True if a value has the type of that name.
bool is_of(const Schema& value, const std::string& type);

[[noreturn]] void fail_keyword(const std::string& path, const char* keyword,
                               const std::string& why);

}  // namespace trireme
