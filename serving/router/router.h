// Router: one address for several servers of OpenAI's API, with health checks, load balancing by
// prompt and load, and relays.
//
// A server is up while GET /health/ready (or /health if it has no such path) returns 200; the first
// such response admits it. It is down as soon as it reports that it is not ready, or a connection
// to it fails; its running requests then continue. It is also down after `health_failures` failed
// checks in a row. Its running requests are then broken off, and retried on another server if none
// of their response has arrived. One thread talks to all servers.
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

  Routes routes();
  void count(const RequestSummary& summary);
  void close();  // rejects new requests from now on
  // Waits for up to `limit`; returns whether any server is up.
  bool wait_for_a_server(std::chrono::milliseconds limit) const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme
