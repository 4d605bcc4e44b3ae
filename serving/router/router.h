// One address before several servers of OpenAI's API: health checks, a choice by prompt and load,
// and the relays.
//
// A server is up while it answers GET /health/ready (where it has no such path, /health) with 200;
// the first answer lets it in. It is out as soon as it says that it is not ready or refuses a
// connection, or has been silent `health_failures` times in a row. What is under way there goes on,
// but for the last of these: then it breaks off, and is sent elsewhere where nothing of its answer
// has come. One thread talks to all servers.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "serving/balance/server_choice.h"
#include "serving/client/server_address.h"
#include "serving/http/server/routes.h"
#include "serving/http/server/server.h"

namespace trireme {

// What is held of servers' answers that are not streamed, and of a stream's event until it is
// whole, in bytes.
struct RelayedAnswerLimits {
  int64_t whole = int64_t{64} << 20;      // of a request
  int64_t always = int64_t{64} << 10;     // of a request: what is above is of the budget of all
  int64_t all = int64_t{512} << 20;       // 503
  int64_t of_a_key = int64_t{256} << 20;  // of all; without keys a request may use all
};

struct RouterConfig {
  std::vector<ServerAddress> servers = {};  // 1 to kMostServers
  std::string ca_file = {};
  BalanceRule balance = {};
  std::chrono::milliseconds silence{600'000};
  std::chrono::milliseconds health_interval{1000}, health_timeout{2000};
  int health_failures = 3;
  RelayedAnswerLimits answers = {};
};

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
