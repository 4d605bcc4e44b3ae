// One HTTP exchange: a request and its response, from the complete head of the request, or its
// rejection, to the end of the response.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "serving/http/server/exchange.h"
#include "serving/http/server/server_state.h"

namespace trireme {

// Counted in ServerState::exchanges while it exists; reported to its on_request at the end.
struct HttpExchange {
  using Clock = std::chrono::steady_clock;

  explicit HttpExchange(ServerState& its_state);
  ~HttpExchange();
  HttpExchange(const HttpExchange&) = delete;
  HttpExchange& operator=(const HttpExchange&) = delete;

  // End of the request's own time limit (X-Request-Timeout-Ms); time_point::max() without one.
  Clock::time_point deadline() const;
  // Framing of a streaming response: chunks, or for HTTP/1.0 none until the connection closes.
  bool is_chunked() const { return request.head.version >= 11; }
  bool expects_continue() const;  // the client waits for 100 Continue before it sends the body

  ServerState& state;
  HttpRequest request;              // without its body
  const Route* route = nullptr;     // nullptr: none, or not known yet
  std::optional<ApiError> refusal;  // error to respond with instead of the handler's result
  std::string other_methods;        // methods of the path, if the request's is not among them
  Headers origin_headers;           // CORS headers of its response (AllowedOrigins)
  bool keep = true;                 // the connection stays open after the response
  int status = 0;                   // of the response; 0: none has begun
  int64_t body_bytes = 0;           // size of the request's body; 0 unless it was read completely

 private:
  void report() const;
};

// Error of a request whose own time limit has passed.
ApiError deadline_error();

}  // namespace trireme
