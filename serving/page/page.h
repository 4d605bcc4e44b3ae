// Web UI at / of a server: a chat and the server's gauges. Its three files are compiled into the
// program and need no API key; its requests to the server need one if the server has keys.
#pragma once

#include "serving/http/server/routes.h"

namespace trireme {

void add_page(Routes& routes);

}  // namespace trireme
