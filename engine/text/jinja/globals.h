// Global functions of templates.
#pragma once

#include <ctime>

#include "engine/text/jinja/nodes.h"

namespace trireme::jinja {

// Defines range, dict, namespace, cycler, joiner, raise_exception and strftime_now, which formats
// `now` as local time. The renderer must outlive the scope.
void set_globals(Scope& scope, Renderer& r, std::time_t now);

}  // namespace trireme::jinja
