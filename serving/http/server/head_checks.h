// Checks of a request's head, before its body is read. Cheap, since unauthenticated clients can
// trigger them.
#pragma once

#include <string>

#include "serving/http/server/exchange.h"
#include "serving/http/server/routes.h"

namespace trireme {

// The client's X-Request-Id if it is safe to log and return, else a random id.
std::string request_id_of(const RequestHead& head);
std::string random_request_id();

// local_names_only: rejects requests whose Host is neither "localhost" nor a loopback address, as
// protection against DNS rebinding.
struct HeadRules {
  const Routes& routes;
  const ApiKeys& keys;
  bool local_names_only = false;
};

// Returns the route of the request; sets request.tenant. ApiError when the route does not exist or
// this client may not use it. For 405, other_methods is set (Routes::find).
const Route& find_route(const HeadRules& rules, HttpRequest& request, std::string& other_methods);
// Checks the headers that a route needs; sets request.timeout. ApiError when one is invalid.
void check_headers(const Route& route, HttpRequest& request);

}  // namespace trireme
