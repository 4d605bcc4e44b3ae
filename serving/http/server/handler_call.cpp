#include "serving/http/server/handler_call.h"

#include <boost/asio/use_awaitable.hpp>

namespace trireme {

HandlerCall::HandlerCall(const HttpExchange& exchange, std::string body, ByteShare share)
    : request{.head = exchange.request.head,
              .body = std::move(body),
              .share = std::move(share),
              .id = exchange.request.id,
              .tenant = exchange.request.tenant,
              .arrival = exchange.request.arrival,
              .timeout = exchange.request.timeout},
      route(exchange.route) {}

void HandlerCall::run() {
  try {
    result = route->handle(request);
  } catch (const std::exception& error) {
    result.response = response_of(error, request.id);
  }
  request.forget_body();
}

TimedTransport::Awaitable<bool> run_at_worker(HttpExchange& exchange,
                                              const std::shared_ptr<HandlerCall>& call,
                                              TimedTransport& transport) {
  try {
    if (call->route->admit) call->route->admit(call->request.head, call->request.tenant);
  } catch (const ApiError& error) {
    exchange.refusal = error;
    co_return true;
  }
  WorkQueue& workers = exchange.state.workers;
  const auto ticket =
      submit_task(workers, exchange.request.tenant, exchange.body_bytes, call, transport);
  if (!ticket) {
    exchange.refusal.emplace(503, "too many requests are waiting to be processed", "",
                             "server_overloaded");
    exchange.refusal->retry_after(1000);
    co_return true;
  }
  // A client that sends GET may have closed its sending half already.
  const bool is_look_up = exchange.route->method == "GET";
  const auto end = exchange.deadline();
  const auto left = [&] { return !is_look_up && transport.peer_disconnected(); };
  while (!call->done && !left() && HttpExchange::Clock::now() < end)
    co_await transport.wait_or_disconnect(end);
  if (call->done) co_return true;
  workers.withdraw(ticket);
  if (left()) co_return false;
  exchange.refusal = deadline_error();
  co_return true;
}

}  // namespace trireme
