// What can be said of a request by its head alone, before its body is read: cheap, since anybody
// may have it done.
#pragma once

#include <string>

#include "serving/http/server/exchange.h"
#include "serving/http/server/routes.h"

namespace trireme {

// The client's own X-Request-Id where it is harmless, else a random one.
std::string request_id_of(const RequestHead& head);
std::string random_request_id();

// local_names_only: pages from elsewhere, whose names may point here, are refused.
struct HeadRules {
  const Routes& routes;
  const ApiKeys& keys;
  bool local_names_only = false;
};

// The route that is asked for; sets request.tenant. ApiError where it is not for this client, or
// there is none: 405 with the methods that its path has (Routes::find).
const Route& find_route(const HeadRules& rules, HttpRequest& request, std::string& other_methods);
// The headers a route needs; sets request.timeout. ApiError where they are not right.
void check_headers(const Route& route, HttpRequest& request);

}  // namespace trireme
