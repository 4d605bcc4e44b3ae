// The filters int and float, which read numbers as Python's int() and float() do.
#pragma once

#include "engine/text/jinja/nodes.h"

namespace trireme::jinja {

Value int_filter(Renderer& r, const Value& v, const Arguments& a);
Value float_filter(Renderer& r, const Value& v, const Arguments& a);

}  // namespace trireme::jinja
