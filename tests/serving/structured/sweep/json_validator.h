// Validator of values against a schema, independent of the code that builds grammars.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace trireme::test {

using Json = nlohmann::ordered_json;

// "" if the value is valid, else the invalid part. root: document that references point into.
std::string invalid_part(const Json& value, const Json& schema, const Json& root);

}  // namespace trireme::test
