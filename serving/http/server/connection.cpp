#include "serving/http/server/connection.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "engine/observe/log.h"
#include "serving/http/server/handler_call.h"
#include "serving/http/server/head_checks.h"
#include "serving/http/server/pending_response.h"

namespace trireme {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

}  // namespace

Connection::Connection(std::shared_ptr<ServerState> state, std::unique_ptr<ConnectionSlot> slot,
                       std::unique_ptr<HttpTransport> transport)
    : state_(std::move(state)),
      slot_(std::move(slot)),
      transport_(std::make_shared<TimedTransport>(std::move(transport), state_->config.limits)),
      input_(*transport_, state_->config.limits),
      writer_(*transport_, *state_) {}

Connection::~Connection() {
  const std::lock_guard lock(state_->mutex);
  state_->open.erase(this);
}

void Connection::start(bool tls) {
  {
    const std::lock_guard lock(state_->mutex);
    state_->open.emplace(this, weak_from_this());
  }
  // The coroutine's frame owns the lambda, and with it the connection, until it has ended.
  asio::co_spawn(
      transport_->executor(), [self = shared_from_this(), tls] { return self->run(tls); },
      asio::detached);
}

void Connection::leave_when_idle() {
  asio::post(transport_->executor(), [self = shared_from_this()] { self->input_.leave(); });
}

Connection::Awaitable<void> Connection::run(bool tls) {
  try {
    bool good = true;
    if (tls) {
      transport_->arm(state_->config.limits.head_time);
      good = co_await transport_->handshake();
    }
    if (good) {
      while (co_await serve()) input_.end_first();
      co_await transport_->shutdown_send();
    }
  } catch (const std::exception& error) {
    log_error("closing a connection after an error: ", error.what());
  }
  transport_->disarm();
  transport_->close();
}

// Returns whether the connection stays open.
Connection::Awaitable<bool> Connection::serve() {
  RequestReader reader(state_->config.limits, state_->all_bodies);
  const RequestInput::Head read = co_await input_.read_head(reader);
  if (read == RequestInput::Head::kTooSlow) co_await refuse_slow_head();
  if (read != RequestInput::Head::kRead) co_return false;
  HttpExchange exchange(*state_);
  exchange.request.head = reader.head();
  exchange.request.arrival = HttpExchange::Clock::now();
  exchange.request.id = request_id_of(reader.head());
  exchange.keep = reader.head().keep_alive && !state_->draining;
  const AllowedOrigins& origins = state_->config.origins;
  exchange.origin_headers = origins.headers(reader.head());
  const std::optional<HttpResponse> preflight = origins.preflight(reader.head());
  if (reader.state() == RequestReader::State::kRefused)
    exchange.refusal = reader.refusal();
  else if (!preflight)
    check_head(exchange);
  if (preflight && !exchange.refusal)
    co_return co_await write_preflight(exchange, reader, *preflight);
  if (!exchange.refusal && !co_await input_.read_body(reader, exchange)) co_return false;
  if (exchange.refusal) co_return co_await refuse(exchange, reader, *exchange.refusal);
  co_return co_await respond(exchange, reader);
}

Connection::Awaitable<void> Connection::refuse_slow_head() {
  HttpExchange exchange(*state_);
  exchange.keep = false;
  exchange.request.arrival = HttpExchange::Clock::now();
  exchange.request.id = random_request_id();
  const ApiError error(408, "the request's head did not arrive in time", "", "request_timeout");
  co_await writer_.write_whole(exchange, response_of(error));
}

Connection::Awaitable<bool> Connection::refuse(HttpExchange& exchange, RequestReader& reader,
                                               const ApiError& error) {
  const bool whole = reader.state() == RequestReader::State::kDone;
  exchange.keep = exchange.keep && (whole || input_.has_small_body(reader, exchange));
  HttpResponse refusal = response_of(error);
  if (refusal.status == 405)  // RFC 9110, 15.5.6
    refusal.headers.emplace_back("Allow", exchange.other_methods);
  if (!co_await writer_.write_whole(exchange, refusal)) co_return false;
  co_return whole || co_await input_.discard_body(reader);
}

// Does not read a body: no preflight has one.
Connection::Awaitable<bool> Connection::write_preflight(HttpExchange& exchange,
                                                        const RequestReader& reader,
                                                        const HttpResponse& preflight) {
  exchange.keep = exchange.keep && reader.state() == RequestReader::State::kDone;
  co_return co_await writer_.write_whole(exchange, preflight);
}

Connection::Awaitable<bool> Connection::respond(HttpExchange& exchange, RequestReader& reader) {
  const auto call =
      std::make_shared<HandlerCall>(exchange, reader.take_body(), reader.take_share());
  exchange.body_bytes = std::ssize(call->request.body);
  if (exchange.route->is_quick)
    call->run();
  else if (!co_await run_at_worker(exchange, call, *transport_))
    co_return false;
  if (exchange.refusal)
    co_return co_await writer_.write_whole(exchange, response_of(*exchange.refusal));
  if (call->result.pending == nullptr)
    co_return co_await writer_.write_whole(exchange, call->result.response);
  PendingResponse response(std::move(call->result.pending), exchange, writer_, *transport_);
  co_return co_await response.run();
}

void Connection::check_head(HttpExchange& exchange) {
  const HeadRules rules{state_->routes, state_->config.keys, state_->local_names_only};
  try {
    exchange.route = &find_route(rules, exchange.request, exchange.other_methods);
    check_headers(*exchange.route, exchange.request);
    if (exchange.route->admit)
      exchange.route->admit(exchange.request.head, exchange.request.tenant);
  } catch (const ApiError& error) {
    exchange.refusal = error;
    if (error.status() == 401 || error.status() == 403) log_refused_key(exchange, error);
  }
}

void Connection::log_refused_key(const HttpExchange& exchange, const ApiError& error) {
  const RequestHead& head = exchange.request.head;
  std::string ignored_methods;
  const Route* route = state_->routes.find(head.method, head.path, ignored_methods);
  error_code ignored;
  const auto peer = transport_->socket().remote_endpoint(ignored);
  state_->refusals.note(peer.address().to_string(), route == nullptr ? "" : route->path, error);
}

}  // namespace trireme
