// JSON values of configurations.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace trireme {

using Json = nlohmann::ordered_json;

// Value as shown in messages: compact ASCII JSON, cut to 60 characters.
std::string shown(const Json& value);

// Value at a dotted path, created if absent: null, with the objects on the way to it. The document
// and every value on the way must be null or an object.
Json& value_at(Json& document, const std::string& path);

}  // namespace trireme
