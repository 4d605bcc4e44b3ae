// Python's two string formatting operations.
#pragma once

#include "engine/text/jinja/nodes.h"

namespace trireme::jinja {

// format % values: %(name)s, flags, width, precision and the conversions s, r, d, i, u, x, X, o, e,
// E, f, F, g, G and c, like Python's str. values: one value, a tuple of values, or a dict of named
// ones.
std::string percent_formatted(Renderer& r, const std::string& format, const Value& values);
// format.format(arguments): {}, {0}, {name.member[0]!r:>8}, like Python's str.
std::string brace_formatted(Renderer& r, const std::string& format, const Arguments& arguments);

}  // namespace trireme::jinja
