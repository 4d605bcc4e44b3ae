// Prometheus metrics of a router. Thread-safe.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "serving/http/server/server.h"
#include "serving/load_balancer/server_choice.h"

namespace trireme {

// How an attempt to get a response from a server ended. kUnready: 503; kConnect: no connection.
enum class AttemptEnd { kAnswered, kUnready, kConnect, kBroken, kTimeout, kCancelled };

class RouterMetrics {
 public:
  explicit RouterMetrics(const std::vector<std::string>& servers);  // servers: their URLs
  ~RouterMetrics();

  void chosen(Affinity affinity);
  void ended(size_t server, AttemptEnd how);  // an attempt has ended
  void retried(size_t server);                // server: of the failed attempt
  // seconds: from the request's arrival to the head of the server's response.
  void first_byte(size_t server, double seconds);
  void http_request(const RequestSummary& summary);

  // Prometheus text format, with gauges as of now.
  std::string text(const ServerChoice& choice);

 private:
  struct Series;
  std::unique_ptr<Series> series_;
};

}  // namespace trireme
