// A request of a connection, from its head to the end of its response.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "serving/http/server/exchange.h"
#include "serving/http/server/server_state.h"

namespace trireme {

// Counted in the server's state while it exists, and reported at its end.
struct HttpExchange {
  using Clock = std::chrono::steady_clock;

  explicit HttpExchange(ServerState& its_state);
  ~HttpExchange();
  HttpExchange(const HttpExchange&) = delete;
  HttpExchange& operator=(const HttpExchange&) = delete;

  // When the request's own time has passed.
  Clock::time_point deadline() const;
  bool is_chunked() const { return request.head.version >= 11; }  // a streaming response
  bool expects_continue() const;                                  // before it sends its body

  ServerState& state;
  HttpRequest request;  // without its body
  const Route* route = nullptr;
  std::optional<ApiError> refusal;
  std::string other_methods;  // that the path has, where it has not this one
  Headers origin_headers;     // of its response (AllowedOrigins)
  bool keep = true;           // the connection stays afterwards
  int status = 0;
  int64_t body_bytes = 0;

 private:
  void report() const;
};

// The error of a request whose own deadline has passed.
ApiError deadline_error();

}  // namespace trireme
