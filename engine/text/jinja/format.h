// Python's two ways of writing values into a text.
#pragma once

#include "engine/text/jinja/nodes.h"

namespace trireme::jinja {

// format % values: %(name)s, flags, width, precision and the conversions s, r, d, i, u, x, X, o, e,
// E, f, F, g, G and c, as Python's str has them. A tuple holds several values, a dict those with
// names.
std::string percent_formatted(Renderer& r, const std::string& format, const Value& values);
// format.format(arguments): {}, {0}, {name.member[0]!r:>8}, as Python's str has them.
std::string brace_formatted(Renderer& r, const std::string& format, const Arguments& arguments);

}  // namespace trireme::jinja
