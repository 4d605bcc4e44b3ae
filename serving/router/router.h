// Router: one address for several servers of OpenAI's API, with health checks and cache-aware load
// balancing.
//
// A server is up once GET /health/ready (or /health if it has no such path) returns 200. It is down
// again in two cases:
//  - It reports that it is not ready, or a connection to it fails. Its running requests continue.
//  - `health_failures` health checks in a row get no valid HTTP response. Its running requests are
//    broken off; those that have no part of a response yet are retried on another server.
// One thread handles the connections to all servers.
#pragma once

#include <chrono>
#include <memory>

#include "serving/http/server/routes.h"
#include "serving/http/server/server.h"
#include "serving/router/router_config.h"

namespace trireme {

class Router {
 public:
  // Starts health checks. InputError for certificates that cannot be read.
  explicit Router(RouterConfig config);
  ~Router();  // destroy the server that uses its routes first
  Router(const Router&) = delete;
  Router& operator=(const Router&) = delete;

  // Routes of the router itself (/health, /health/live, /health/ready and /metrics) and of the
  // paths that it relays: all below /v1/ except admin endpoints, and the other user endpoints
  // (serving/api/endpoint.h). They refer to this router.
  Routes routes();
  void count(const RequestSummary& summary);  // counts a request in the metrics
  void close();                               // from now on, rejects new requests with 503
  // Waits up to `limit` until a server is up; returns whether one is.
  bool wait_for_a_server(std::chrono::milliseconds limit) const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme
