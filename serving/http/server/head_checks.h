// Checks of a request's head, before its body is read. Cheap, since unauthenticated clients can
// trigger them.
#pragma once

#include <string>

#include "serving/http/server/exchange.h"
#include "serving/http/server/routes.h"

namespace trireme {

// The client's X-Request-Id if it is harmless, else a random one.
std::string request_id_of(const RequestHead& head);
std::string random_request_id();

// local_names_only: reject requests with another Host than this machine's local names (protects
// against DNS rebinding).
struct HeadRules {
  const Routes& routes;
  const ApiKeys& keys;
  bool local_names_only = false;
};

// Route of the request; sets request.tenant. ApiError when this client may not use it or it does
// not exist: 405 with the methods of its path (Routes::find).
const Route& find_route(const HeadRules& rules, HttpRequest& request, std::string& other_methods);
// Checks the headers that a route needs; sets request.timeout. ApiError when one is invalid.
void check_headers(const Route& route, HttpRequest& request);

}  // namespace trireme
