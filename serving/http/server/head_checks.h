// Checks of a request's head, before its body is read. Cheap, since unauthenticated clients can
// trigger them.
#pragma once

#include <string>

#include "serving/http/server/exchange.h"
#include "serving/http/server/routes.h"

namespace trireme {

// The client's X-Request-Id if it is safe to log and return (1 to 128 ASCII letters, digits, '-',
// '_' and '.'), else random_request_id().
std::string request_id_of(const RequestHead& head);
std::string random_request_id();  // 32 hexadecimal digits

// local_names_only: rejects requests with a Host header that is neither "localhost" nor a loopback
// address, as protection against DNS rebinding.
struct HeadRules {
  const Routes& routes;
  const ApiKeys& keys;
  bool local_names_only = false;
};

// Returns the route of the request; sets request.tenant. ApiError 401 or 403 when this client may
// not use it, 404 when the path does not exist, 405 when it has only other methods: then
// other_methods is set (Routes::find).
const Route& find_route(const HeadRules& rules, HttpRequest& request, std::string& other_methods);
// Checks Expect, X-Request-Timeout-Ms, and for a POST with a body its Content-Type and
// Content-Encoding; sets request.timeout. ApiError 400, 415 or 417 when one is invalid.
void check_headers(const Route& route, HttpRequest& request);

}  // namespace trireme
