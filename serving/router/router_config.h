// Configuration of the router: servers, load balancing, time limits and response limits.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "serving/client/server_address.h"
#include "serving/load_balancer/server_choice.h"

namespace trireme {

// Limits on bytes buffered for responses of servers: a whole body, or an event of a stream until it
// is complete.
struct RelayedResponseLimits {
  int64_t whole = int64_t{64} << 20;   // per request; above it: 502
  int64_t always = int64_t{64} << 10;  // per request, free; bytes beyond count against `all`
  int64_t all = int64_t{512} << 20;    // of all requests; above it: 503
  // Per API key, within `all`; with at most one key a request may use all.
  int64_t of_a_key = int64_t{256} << 20;
};

struct RouterConfig {
  std::vector<ServerAddress> servers = {};  // 1 to kMaxServers
  std::string ca_file = {};                 // for https servers: see make_client_tls()
  BalanceRule balance = {};
  std::chrono::milliseconds silence{600'000};  // maximum time without a byte from a server
  // Pause between two health checks of a server, and limit on each wait of a check.
  std::chrono::milliseconds health_interval{1000}, health_timeout{2000};
  int health_failures = 3;  // failed checks in a row that break off the server's requests
  RelayedResponseLimits responses = {};
};

}  // namespace trireme
