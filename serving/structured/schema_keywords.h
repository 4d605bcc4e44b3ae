// Normalized constraints of schemas, and intersections of them. For .cpp files only (it includes
// the JSON library).
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "serving/structured/compile_budget.h"

namespace trireme {

using Schema = nlohmann::ordered_json;

// Looks up the schema of a reference such as "#/$defs/name". InputError if there is none.
using SchemaFinder = std::function<const Schema&(const std::string& reference)>;

// Constraints of a schema, without annotations (title, default, an unknown `format`) and keywords
// whose value allows everything. path: of the schema, for errors. Other spellings are rewritten:
// tuples in `items`, `exclusiveMinimum: true`, `dependencies` and `dependentSchemas` that only
// require names, and, in a schema without references and combining keywords, unevaluatedProperties
// and unevaluatedItems. minContains is set whenever contains is. InputError with path and keyword
// for an unsupported keyword.
Schema constraints_of(const Schema& schema, const std::string& path);
// Constraints of the values that satisfy both; a and b as returned by constraints_of(), but `a`
// without `nullable`, which is ignored in `b`. Several values of pattern, format or multipleOf
// become an array of them. InputError if unsupported.
Schema merged(const Schema& a, const Schema& b, const std::string& path, CompileBudget& budget);
// Types allowed by constraints: "string", "integer", ... "number" includes the integers, so both
// are never returned. Without `type`, all types that the other keywords refer to, such as "string"
// for minLength; if they refer to none, all types. InputError for an unknown type.
std::vector<std::string> types_of(const Schema& constraints, const std::string& path);

// Value of a counting keyword such as minLength or maxItems; `otherwise` if absent. A maximum above
// 2^30, which is beyond any text, becomes 2^30. InputError if it is not an integer >= 0, or if a
// minimum is above 100000.
int64_t count_of(const Schema& s, const char* keyword, int64_t otherwise, const std::string& path);

// True if a value has the type of that name. 1.0 is an integer, too.
bool is_of(const Schema& value, const std::string& type);

// Throws InputError: schema PATH: "KEYWORD" WHY.
[[noreturn]] void fail_keyword(const std::string& path, const char* keyword,
                               const std::string& why);

}  // namespace trireme
