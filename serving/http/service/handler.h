// Handler of an endpoint: what the server does for a row of serving/api/endpoint.h.
#pragma once

#include <span>

#include "serving/api/endpoint.h"
#include "serving/http/server/exchange.h"
#include "serving/http/service/service_context.h"

namespace trireme {

struct Handler {
  const Endpoint& endpoint;
  HttpAnswer (*handle)(ServiceContext&, HttpRequest&);
  // Whether this server has the endpoint; nullptr: always.
  bool (*is_offered)(const ServiceContext&) = nullptr;
};

// All of them; in tests they are the endpoints() of the API, each once.
std::span<const Handler* const> handlers();

}  // namespace trireme
