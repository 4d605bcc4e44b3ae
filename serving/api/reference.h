// Markdown reference of request fields and of response types, derived from the endpoints.
#pragma once

#include <string>

namespace trireme {

std::string api_reference();

}  // namespace trireme
