// OpenAPI 3.1 document of the server, derived from its endpoints.
#pragma once

#include <string>

namespace trireme {

std::string openapi_document(const std::string& version);

}  // namespace trireme
