// HTTP/1.1 server: few threads, thousands of connections, a time limit on every wait for a client.
//
// Requests of a connection are served one after the other, in order. A running POST, or response of
// a ResponseProducer (exchange.h), is cancelled when its peer closes the connection, or only the
// sending half of it.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>

#include "serving/http/server/routes.h"
#include "serving/http/server/server_config.h"

namespace trireme {

struct HttpCounts {
  int64_t connections = 0;
  int64_t exchanges = 0;  // requests whose responses are incomplete
  int64_t waiting = 0;    // jobs of requests that wait for a worker
};

class HttpServer {
 public:
  // Serves immediately. on_request is called at the end of each request, by several threads in
  // parallel. InputError for a host that is not an address, for an address that cannot be bound,
  // for TLS files that cannot be read, and, without API keys, for an address that other machines
  // can reach (see HttpConfig::insecure).
  HttpServer(HttpConfig config, Routes routes,
             std::function<void(const RequestSummary&)> on_request = {});
  ~HttpServer();  // stop()
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const;  // port in use, also for HttpConfig::port 0
  HttpCounts counts() const;
  // Starts draining: closes idle connections now, and the others after their current response. A
  // connection that has not sent a request yet gets HttpLimits::unasked_time, since its first one
  // may be on the way. Waits until no response is pending (true), or for `limit` (false). New
  // connections and their requests are still accepted meanwhile: the handlers must reject those.
  bool drain(std::chrono::milliseconds limit);
  // Closes all connections and cuts off incomplete responses. Waits for handlers that are running.
  void stop();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme
