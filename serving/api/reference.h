// The reference of the API's fields as Markdown, from the tables of fields.
#pragma once

#include <string>

namespace trireme {

std::string api_reference();

}  // namespace trireme
