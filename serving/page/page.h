// The page at / of a server: a chat and what the server does meanwhile. Its three files are part of
// the program and open to everyone; whatever they ask the server for needs a key where the server
// has keys.
#pragma once

#include "serving/http/server/routes.h"

namespace trireme {

void add_page(Routes& routes);

}  // namespace trireme
