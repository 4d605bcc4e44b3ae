// JSON values of configurations.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace trireme {

using Json = nlohmann::ordered_json;

// A value as messages show it: compact JSON, at most 60 characters.
std::string shown(const Json& value);

// The value at a path of names with dots, made where there is none yet. The document is null or an
// object, and so is every value on the way.
Json& value_at(Json& document, const std::string& path);

}  // namespace trireme
