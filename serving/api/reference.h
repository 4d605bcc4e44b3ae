// Reference of request fields as Markdown, from the rows of the endpoints.
#pragma once

#include <string>

namespace trireme {

std::string api_reference();

}  // namespace trireme
