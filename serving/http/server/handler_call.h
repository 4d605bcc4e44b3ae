// Call of a route's handler, on the connection's thread or a worker's. For .cpp files only (it
// includes Asio).
#pragma once

#include "serving/http/server/http_exchange.h"
#include "serving/http/server/worker_task.h"

namespace trireme {

struct HandlerCall final : WorkerTask {
  // `body` and its share go with the call, since it may outlive the exchange.
  HandlerCall(const HttpExchange& exchange, std::string body, ByteShare share);
  void run() override;

  HttpRequest request;
  const Route* const route;
  HttpAnswer answer = {};
};

// Has a worker run the call, unless it is refused: then exchange.refusal is set. False: the peer
// has left.
TimedTransport::Awaitable<bool> run_at_worker(HttpExchange& exchange,
                                              const std::shared_ptr<HandlerCall>& call,
                                              TimedTransport& transport);

}  // namespace trireme
