// Call of a route's handler, on the connection's thread or on a worker. For .cpp files only
// (includes Asio).
#pragma once

#include "serving/http/server/http_exchange.h"
#include "serving/http/server/worker_task.h"

namespace trireme {

struct HandlerCall final : WorkerTask {
  // Owns `body` and its share, since it may outlive the exchange.
  HandlerCall(const HttpExchange& exchange, std::string body, ByteShare share);
  // Calls the handler and sets `result`; an exception becomes an error response. Frees the body.
  void run() override;

  HttpRequest request;
  const Route* const route;
  HandlerResult result = {};
};

// Runs the call on a worker. Sets exchange.refusal if admission or the work queue rejects it, or if
// the request's time limit passes. False: the peer has disconnected (not checked for GET, whose
// client may have closed its sending half).
TimedTransport::Awaitable<bool> run_at_worker(HttpExchange& exchange,
                                              const std::shared_ptr<HandlerCall>& call,
                                              TimedTransport& transport);

}  // namespace trireme
