// A server of HTTP/1.1: few threads, thousands of connections, every wait with a bound.
//
// A connection's requests are answered one after the other, in their order. Who goes away takes
// what is computed for him along: a peer that closes, even only its half, while a POST is answered
// has it cancelled.
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
  int64_t exchanges = 0;  // requests whose answers are not complete
  int64_t waiting = 0;    // of them, those that wait for the workers
};

class HttpServer {
 public:
  // Serves at once. InputError for an address that cannot be bound, for files of TLS that cannot be
  // read, and for an address that others reach without keys.
  HttpServer(HttpConfig config, Routes routes,
             std::function<void(const RequestSummary&)> on_request = {});
  ~HttpServer();  // stop()
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const;
  HttpCounts counts() const;
  // From now on connections are closed after their answers, and at once those between requests. One
  // that has not been asked anything is left limits.unasked_time, as its first request may be on
  // the way. Waits until no answer is pending, or until the limit; says which. What is refused
  // meanwhile is for the routes to decide.
  bool drain(std::chrono::milliseconds limit);
  // Closes everything; answers under way are cut off.
  void stop();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme
