// A request of a connection from its head to the end of its answer. For .cpp files only, those of
// Connection.
#pragma once

#include "engine/observe/log.h"
#include "serving/http/server/connection.h"

namespace trireme {

struct Connection::Exchange {
  explicit Exchange(ServerState& its_state) : state(its_state) { ++state.exchanges; }
  ~Exchange() {
    try {
      tell();
    } catch (const std::exception& error) {
      log_error("request ", request.id, " is not counted: ", error.what());
    }
    --state.exchanges;
  }
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;
  void tell() const {
    if (!state.on_request) return;
    const double seconds = std::chrono::duration<double>(Clock::now() - request.arrival).count();
    state.on_request({route == nullptr ? "none" : route->path, request.head.method, status, seconds,
                      body_bytes});
  }

  // When the request's own time has passed.
  Clock::time_point deadline() const {
    return request.timeout ? request.arrival + *request.timeout : Clock::time_point::max();
  }

  ServerState& state;
  HttpRequest request;  // without its body
  const Route* route = nullptr;
  std::optional<ApiError> refusal;
  std::string other_methods;  // that the path has, where it has not this one
  bool keep = true;           // the connection goes on afterwards
  int status = 0;
  int64_t body_bytes = 0;
};

}  // namespace trireme
