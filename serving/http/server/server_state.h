// State shared by all connections of a server.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "serving/http/server/byte_budget.h"
#include "serving/http/server/refusal_log.h"
#include "serving/http/server/routes.h"
#include "serving/http/server/server_config.h"
#include "serving/http/server/work_queue.h"

namespace trireme {

class Connection;

struct ServerState {
  ServerState(HttpConfig its_config, Routes its_routes,
              std::function<void(const RequestSummary&)> its_listener)
      : config(std::move(its_config)),
        routes(std::move(its_routes)),
        on_request(std::move(its_listener)),
        all_bodies(std::make_shared<ByteBudget>(config.limits.all_bodies)),
        workers(config.workers, config.limits.work) {}

  const HttpConfig config;
  const Routes routes;
  const std::function<void(const RequestSummary&)> on_request;
  bool local_names_only = false;                      // HeadRules (head_checks.h)
  const std::shared_ptr<ByteBudget> all_bodies;       // bytes of the bodies of all requests
  std::atomic<int64_t> connections{0}, exchanges{0};  // numbers of existing ones
  std::atomic<bool> draining{false};
  RefusalLog refusals;
  WorkQueue workers;                          // stopped before the io_contexts are destroyed
  std::mutex mutex;                           // guards all below
  std::map<std::string, int64_t> of_address;  // connections by address group (connection_slot.h)
  std::map<const Connection*, std::weak_ptr<Connection>> open;
};

}  // namespace trireme
