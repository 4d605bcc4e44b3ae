// Web UI of a server, at /: a chat and the server's gauges. Its three files are compiled into the
// program and need no API key. Its requests to the server need one if the server has keys.
#pragma once

#include "serving/http/server/routes.h"

namespace trireme {

// Adds the routes of the three files.
void add_web_ui(Routes& routes);

}  // namespace trireme
