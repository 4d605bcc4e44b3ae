// Whether a value satisfies a schema, said by nothing that the grammars are made with.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace trireme::test {

using Json = nlohmann::ordered_json;

// "" if it does, else where it does not. root: what references lead into.
std::string invalid_part(const Json& value, const Json& schema, const Json& root);

}  // namespace trireme::test
