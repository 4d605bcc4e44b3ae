#include "serving/http/server/http_exchange.h"

#include "engine/observe/log.h"

namespace trireme {

HttpExchange::HttpExchange(ServerState& its_state) : state(its_state) { ++state.exchanges; }

HttpExchange::~HttpExchange() {
  try {
    report();
  } catch (const std::exception& error) {
    log_error("cannot record request ", request.id, " in the metrics: ", error.what());
  }
  --state.exchanges;
}

void HttpExchange::report() const {
  if (!state.on_request) return;
  const double seconds = std::chrono::duration<double>(Clock::now() - request.arrival).count();
  state.on_request(
      {route == nullptr ? "none" : route->path, request.head.method, status, seconds, body_bytes});
}

HttpExchange::Clock::time_point HttpExchange::deadline() const {
  return request.timeout ? request.arrival + *request.timeout : Clock::time_point::max();
}

bool HttpExchange::expects_continue() const {
  const std::string* expect = request.head.find("expect");
  return expect != nullptr && request.head.version >= 11;
}

ApiError deadline_error() {
  return {504, "the time limit of the request (X-Request-Timeout-Ms) has passed", "",
          "deadline_exceeded"};
}

}  // namespace trireme
