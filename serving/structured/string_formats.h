// Regular expressions of JSON Schema's string formats. They describe the whole string, without ^
// and $, and may have alternatives at the top level.
#pragma once

#include <string>
#include <string_view>

namespace trireme {

// Expression for generation: every match has the format, in one of its usual forms. "": unknown
// format.
std::string format_expression(std::string_view format);
// Expression for checks: matches all strings of a known format, by RFC 3339 (date, time, duration),
// 4122 (uuid), 5321 (email), 1123 (hostname, except its limit of 253 characters), 4291 (ipv6), 3986
// (uri), 3987 (iri), 6901 (json-pointer). "": unknown format.
std::string format_check(std::string_view format);

}  // namespace trireme
