// JSON values of configurations.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace trireme {

using Json = nlohmann::ordered_json;

// A value as messages show it: compact JSON, at most 60 characters.
std::string shown(const Json& value);

}  // namespace trireme
