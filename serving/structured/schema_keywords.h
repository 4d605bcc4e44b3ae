// Schemas as objects of constraints, and two of them as one. For .cpp files only (it includes the
// JSON library).
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "serving/structured/compile_budget.h"

namespace trireme {

using Schema = nlohmann::ordered_json;

// The constraints of an object, without what only describes (title, default, ...); path: where it
// stands. InputError naming a keyword that is not supported, and its path.
Schema constraints_of(const Schema& schema, const std::string& path);
// What satisfies both; both are as constraints_of() returns them. InputError where that is not
// known.
Schema merged(const Schema& a, const Schema& b, const std::string& path, CompileBudget& budget);
// The types that it allows: "string", "integer", ... ("number" without "integer"); all that its
// other keywords speak of where it has no `type`.
std::vector<std::string> types_of(const Schema& constraints, const std::string& path);

// Whether a value is of a type of that name.
bool is_of(const Schema& value, const std::string& type);

[[noreturn]] void fail_keyword(const std::string& path, const char* keyword,
                               const std::string& why);

}  // namespace trireme
