// Prometheus metrics of a router. Thread-safe.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "serving/http/server/server.h"
#include "serving/load_balancer/server_choice.h"

namespace trireme {

// How an attempt to get a response from a server ended. kAnswered: any status but 503, or a
// response above the router's own limits; kUnready: 503; kConnect: no connection; kBroken: the
// connection ended before the response did; kTimeout: the server was silent for too long;
// kCancelled: the client has disconnected.
enum class AttemptEnd { kAnswered, kUnready, kConnect, kBroken, kTimeout, kCancelled };

class RouterMetrics {
 public:
  explicit RouterMetrics(const std::vector<std::string>& servers);  // servers: their URLs
  ~RouterMetrics();

  void chosen(Affinity affinity);             // of the first server chosen for a request
  void ended(size_t server, AttemptEnd how);  // an attempt has ended
  void retried(size_t server);                // server: of the failed attempt
  // seconds: from the request's arrival to the head of the server's response, earlier attempts
  // included.
  void first_byte(size_t server, double seconds);
  void http_request(const RequestSummary& summary);  // a client's request has ended

  // Prometheus text format, with gauges as of now.
  std::string text(const ServerChoice& choice);

 private:
  struct Series;
  std::unique_ptr<Series> series_;
};

}  // namespace trireme
