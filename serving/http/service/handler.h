// Handler of an endpoint: implementation of a row of serving/api/endpoint.h.
#pragma once

#include <span>

#include "serving/api/endpoint.h"
#include "serving/http/server/exchange.h"
#include "serving/http/service/service_context.h"

namespace trireme {

struct Handler {
  const Endpoint& endpoint;
  HandlerResult (*handle)(ServiceContext&, HttpRequest&);
  // Condition for offering the endpoint; nullptr: always.
  bool (*is_offered)(const ServiceContext&) = nullptr;
};

// All handlers. Tests check that they match the API's endpoints() one to one.
std::span<const Handler* const> handlers();

}  // namespace trireme
