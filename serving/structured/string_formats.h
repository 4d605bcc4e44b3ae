// JSON Schema's `format` of strings, as regular expressions whose every match is of the format.
#pragma once

#include <string>
#include <string_view>

namespace trireme {

// "" for a format that is not known.
std::string format_expression(std::string_view format);

}  // namespace trireme
