// Filters int and float, which parse numbers like Python's int() and float().
#pragma once

#include "engine/text/jinja/nodes.h"

namespace trireme::jinja {

Value int_filter(Renderer& r, const Value& v, const Arguments& a);
Value float_filter(Renderer& r, const Value& v, const Arguments& a);

}  // namespace trireme::jinja
