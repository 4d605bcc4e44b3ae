// One address before several servers of OpenAI's API: health checks, a choice by prompt and load,
// and the relays.
//
// A server is up while it answers GET /health/ready (where it has no such path, /health) with 200;
// the first answer lets it in. It is out as soon as it says that it is not ready or refuses a
// connection, or has been silent `health_failures` times in a row. What is under way there goes on,
// but for the last of these: then it breaks off, and is sent elsewhere where nothing of its answer
// has come. One thread talks to all servers.
#pragma once

#include <chrono>
#include <memory>

#include "serving/http/server/routes.h"
#include "serving/http/server/server.h"
#include "serving/router/router_config.h"

namespace trireme {

class Router {
 public:
  // Begins to check the servers. InputError for certificates that cannot be read.
  explicit Router(RouterConfig config);
  ~Router();  // after the server that has its routes
  Router(const Router&) = delete;
  Router& operator=(const Router&) = delete;

  Routes routes();
  void count(const RequestSummary& summary);
  void close();  // new requests are refused from now on
  // Whether some server is up, after waiting so long for one.
  bool wait_for_a_server(std::chrono::milliseconds limit) const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme
