// OpenAPI 3.1 document of the server, derived from its endpoints.
#pragma once

#include <string>

namespace trireme {

// Returns JSON text. version: of the server.
std::string openapi_document(const std::string& version);

}  // namespace trireme
