// A server of HTTP/1.1: few threads, thousands of connections, every wait with a bound.
//
// A connection's requests are answered one after the other, in their order. Who goes away takes
// what is computed for him along: a peer that closes, even only its half, while a POST is answered
// has it cancelled.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "serving/http/server/api_keys.h"
#include "serving/http/server/limits.h"
#include "serving/http/server/routes.h"

namespace trireme {

struct TlsFiles {
  std::string certificate, key;  // PEM: the chain, the private key
};

struct HttpConfig {
  std::string host = "127.0.0.1";  // an address, of IPv6 with brackets or without, or "localhost"
  int port = 8000;                 // 0: any free one
  int threads = 2;                 // that serve connections
  int workers = 2;                 // that read requests and tokenize
  HttpLimits limits = {};
  std::optional<TlsFiles> tls = {};
  ApiKeys keys = {};
  // Without keys only the machine itself may be served, under its own names (a page from elsewhere
  // could have its name point here), unless this is set.
  bool insecure = false;
};

// An answered request, for whoever counts. Called on a thread that serves connections.
struct RequestSummary {
  std::string handler;  // the route's path; "none"
  std::string method;
  int status = 0;
  double seconds = 0;
  int64_t body_bytes = 0;
};

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
