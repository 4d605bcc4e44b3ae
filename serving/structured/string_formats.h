// JSON Schema's `format` of strings, as regular expressions.
#pragma once

#include <string>
#include <string_view>

namespace trireme {

// Strings to generate: every match is of the format, in its usual forms. "" for a format that is
// not known.
std::string format_expression(std::string_view format);
// All strings of a known format, to check given ones: RFC 3339 (date, time, duration), 4122 (uuid),
// 5321 (email), 1123 (hostname, but for its 253 characters), 4291 (ipv6), 3986 (uri), 3987 (iri),
// 6901 (json-pointer).
std::string format_check(std::string_view format);

}  // namespace trireme
