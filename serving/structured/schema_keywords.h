// Schemas as objects of constraints, and two of them as one. For .cpp files only (it includes the
// JSON library).
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "serving/structured/compile_budget.h"

namespace trireme {

using Schema = nlohmann::ordered_json;

// Looks up the schema of a reference such as "#/$defs/name".
using SchemaFinder = std::function<const Schema&(const std::string& reference)>;

// The constraints of an object, without annotations (title, default, a `format` that is not known)
// and keywords whose value allows everything; path: its place. Older spellings become those of
// 2020-12: tuples in `items`, `exclusiveMinimum: true`, `dependencies` of names,
// `unevaluatedProperties: false` of an object by itself. minContains is given wherever contains is.
// InputError naming a keyword that is not supported, and its path.
Schema constraints_of(const Schema& schema, const std::string& path);
// The schema of values that satisfy both; both are as constraints_of() returns them. Several values
// of pattern, format or multipleOf are an array of them. InputError where that is not known.
Schema merged(const Schema& a, const Schema& b, const std::string& path, CompileBudget& budget);
// The types that it allows: "string", "integer", ... ("number" without "integer"); all that its
// other keywords speak of where it has no `type`.
std::vector<std::string> types_of(const Schema& constraints, const std::string& path);

// The value of minLength, maxItems and the like. A maximum beyond any text is a smaller one.
// InputError where it is no count, or a minimum that is too large.
int64_t count_of(const Schema& s, const char* keyword, int64_t otherwise, const std::string& path);

// Whether a value is of a type of that name.
bool is_of(const Schema& value, const std::string& type);

[[noreturn]] void fail_keyword(const std::string& path, const char* keyword,
                               const std::string& why);

}  // namespace trireme
