// Server side of one HTTP connection: serves its requests one after the other. For .cpp files only
// (includes Asio).
#pragma once

#include <memory>

#include "serving/http/server/connection_slot.h"
#include "serving/http/server/request_input.h"
#include "serving/http/server/response_writer.h"
#include "serving/http/server/timed_transport.h"

namespace trireme {

// Runs on the single thread of its socket's io_context. Owns itself from start() until the
// connection has closed.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(std::shared_ptr<ServerState> state, std::unique_ptr<ConnectionSlot> slot,
             std::unique_ptr<HttpTransport> transport);
  ~Connection();
  void start(bool tls);  // tls: begins with the TLS handshake
  // Closes the connection when it is idle. A client that has not sent a request yet has
  // HttpLimits::unasked_time (limits.h) to send one. Any thread.
  void leave_when_idle();

 private:
  template <class T>
  using Awaitable = TimedTransport::Awaitable<T>;

  Awaitable<void> run(bool tls);
  Awaitable<bool> serve();
  Awaitable<void> refuse_slow_head();
  Awaitable<bool> refuse(HttpExchange& exchange, RequestReader& reader, const ApiError& error);
  Awaitable<bool> write_preflight(HttpExchange& exchange, const RequestReader& reader,
                                  const HttpResponse& preflight);
  Awaitable<bool> respond(HttpExchange& exchange, RequestReader& reader);
  void check_head(HttpExchange& exchange);
  void log_refused_key(const HttpExchange& exchange, const ApiError& error);

  std::shared_ptr<ServerState> state_;
  std::unique_ptr<ConnectionSlot> slot_;
  std::shared_ptr<TimedTransport> transport_;
  RequestInput input_;
  ResponseWriter writer_;
};

}  // namespace trireme
