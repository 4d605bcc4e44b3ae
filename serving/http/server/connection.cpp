#include "serving/http/server/connection.h"

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "engine/observe/log.h"
#include "serving/http/server/connection_exchange.h"
#include "serving/http/server/head_checks.h"
#include "serving/http/server/response_text.h"

namespace trireme {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

constexpr size_t kDiscarded =
    64 << 10;  // of a refused request's body, so that the connection stays
constexpr std::chrono::milliseconds kLinger{1000};
constexpr size_t kLingerBytes = 1 << 20;
constexpr size_t kIdleBytes = 4 << 10;  // of a buffer that nothing is in

}  // namespace

Connection::Connection(std::shared_ptr<ServerState> state, std::unique_ptr<ConnectionPlace> place,
                       std::unique_ptr<HttpTransport> transport)
    : state_(std::move(state)),
      place_(std::move(place)),
      transport_(std::move(transport)),
      wake_(transport_->socket().get_executor()),
      deadline_(transport_->socket().get_executor()),
      space_(std::make_unique<char[]>(kReadBytes)) {}

Connection::~Connection() {
  const std::lock_guard lock(state_->mutex);
  state_->open.erase(this);
}

void Connection::start(bool tls) {
  {
    const std::lock_guard lock(state_->mutex);
    state_->open.emplace(this, weak_from_this());
  }
  // What is spawned is kept until it is done, and the connection with it.
  asio::co_spawn(
      wake_.get_executor(), [self = shared_from_this(), tls] { return self->run(tls); },
      asio::detached);
}

void Connection::leave_when_idle() {
  asio::post(wake_.get_executor(), [self = shared_from_this()] {
    self->leave_ = true;
    if (self->idle_ && self->first_) self->arm(self->time_for_head());
    self->notify();
  });
}

// --- requests
// -------------------------------------------------------------------------------------------

Connection::Awaitable<void> Connection::run(bool tls) {
  try {
    bool good = true;
    if (tls) {
      arm(state_->config.limits.head_time);
      good = co_await perform(&HttpTransport::greet);
    }
    if (good) {
      while (co_await serve()) first_ = false;
      co_await close();
    }
  } catch (const std::exception& error) {
    log_error("a connection ends: ", error.what());
  }
  disarm();
  error_code ignored;
  transport_->socket().close(ignored);
}

// True: the connection goes on.
Connection::Awaitable<bool> Connection::serve() {
  RequestReader reader(state_->config.limits, state_->all_bodies);
  if (!co_await read_head(reader)) co_return false;
  Exchange exchange(*state_);
  exchange.request.head = reader.head();
  exchange.request.arrival = Clock::now();
  exchange.request.id = request_id_of(reader.head());
  exchange.keep = reader.head().keep_alive && !state_->draining;
  if (reader.state() == RequestReader::State::kRefused)
    exchange.refusal = reader.refusal();
  else
    check_head(exchange);
  if (!exchange.refusal && !co_await read_body(reader, exchange)) co_return false;
  if (exchange.refusal) {
    const bool whole = reader.state() == RequestReader::State::kDone;
    exchange.keep = exchange.keep && (whole || has_small_body(reader, exchange));
    HttpReply refusal = reply_of(*exchange.refusal);
    if (refusal.status == 405)  // RFC 9110, 15.5.6
      refusal.headers.emplace_back("Allow", exchange.other_methods);
    if (!co_await reply(exchange, refusal)) co_return false;
    co_return whole || co_await discard_body(reader);
  }
  co_return co_await answer(exchange, reader);
}

// Until its first byte. Who has just connected when the server begins to drain cannot know of it:
// he is told.
std::chrono::milliseconds Connection::time_for_head() const {
  const HttpLimits& limits = state_->config.limits;
  if (!first_) return limits.idle_time;
  return leave_ ? std::min(limits.unasked_time, limits.head_time) : limits.head_time;
}

// False: there is none.
Connection::Awaitable<bool> Connection::read_head(RequestReader& reader) {
  const HttpLimits& limits = state_->config.limits;
  arm(time_for_head());
  if (in_.empty() && in_.capacity() > kIdleBytes) std::string().swap(in_);
  bool begun = false;
  idle_ = true;
  while (reader.state() == RequestReader::State::kHead) {
    const size_t taken = reader.feed(in_);
    in_.erase(0, taken);
    if (reader.state() != RequestReader::State::kHead) break;
    if (reader.begun() && !begun) {
      begun = true;
      idle_ = false;
      arm(limits.head_time);
    }
    if (taken > 0 || co_await fill()) continue;
    if (expired_ && begun) {
      disarm();
      Exchange exchange(*state_);
      exchange.keep = false;
      exchange.request.arrival = Clock::now();
      exchange.request.id = random_request_id();
      const ApiError error(408, "the request's head took too long", "", "request_timeout");
      co_await reply(exchange, reply_of(error));
    }
    co_return false;
  }
  idle_ = false;
  disarm();
  co_return true;
}

void Connection::check_head(Exchange& exchange) {
  const HeadRules rules{state_->routes, state_->config.keys, state_->local_names_only};
  try {
    exchange.route = &find_route(rules, exchange.request, exchange.other_methods);
    check_headers(*exchange.route, exchange.request);
    if (exchange.route->admit)
      exchange.route->admit(exchange.request.head, exchange.request.tenant);
  } catch (const ApiError& error) {
    exchange.refusal = error;
    if (error.status() == 401 || error.status() == 403) log_refused_key(exchange);
  }
}

void Connection::log_refused_key(const Exchange& exchange) const {
  const RequestHead& head = exchange.request.head;
  std::string ignored_methods;
  const Route* route = state_->routes.find(head.method, head.path, ignored_methods);
  error_code ignored;
  const auto peer = transport_->socket().remote_endpoint(ignored);
  state_->refusals.note(peer.address().to_string(), route == nullptr ? "" : route->path,
                        *exchange.refusal);
}

bool Connection::asks_to_go_on(const Exchange& exchange) const {
  const std::string* expect = exchange.request.head.find("expect");
  return expect != nullptr && exchange.request.head.version >= 11;
}

// Small enough to be read for nothing, so that the connection stays.
bool Connection::has_small_body(const RequestReader& reader, const Exchange& exchange) const {
  return reader.state() == RequestReader::State::kBody && !asks_to_go_on(exchange) &&
         reader.head().content_length.value_or(kDiscarded + 1) <= kDiscarded;
}

// False: the connection is broken.
Connection::Awaitable<bool> Connection::read_body(RequestReader& reader, Exchange& exchange) {
  if (reader.state() == RequestReader::State::kBody && asks_to_go_on(exchange) && in_.empty())
    if (!co_await write("HTTP/1.1 100 Continue\r\n\r\n")) co_return false;
  arm(state_->config.limits.body_time);
  while (reader.state() == RequestReader::State::kBody) {
    const size_t taken = reader.feed(in_);
    in_.erase(0, taken);
    if (reader.state() != RequestReader::State::kBody || taken > 0 || co_await fill()) continue;
    if (!expired_) co_return false;
    exchange.refusal.emplace(408, "the request's body took too long", "", "request_timeout");
    exchange.keep = false;
    break;
  }
  disarm();
  if (reader.state() == RequestReader::State::kRefused) {
    exchange.refusal = reader.refusal();
    exchange.keep = false;
  }
  co_return true;
}

// Of a request that was refused. False: it has not come.
Connection::Awaitable<bool> Connection::discard_body(RequestReader& reader) {
  reader.discard_body();
  arm(state_->config.limits.body_time);
  while (reader.state() == RequestReader::State::kBody) {
    const size_t taken = reader.feed(in_);
    in_.erase(0, taken);
    if (reader.state() != RequestReader::State::kBody || taken > 0) continue;
    if (!co_await fill()) co_return false;
  }
  disarm();
  co_return reader.state() == RequestReader::State::kDone;
}

// The last bytes shall arrive: a socket that is closed with bytes unread takes its answer back.
Connection::Awaitable<void> Connection::close() {
  if (gone_ || write_failed_) co_return;
  arm(kLinger);
  const uint64_t before = arrived_;
  if (co_await perform(&HttpTransport::take_leave)) {
    do in_.clear();
    while (arrived_ - before < kLingerBytes && co_await fill());
  }
  disarm();
}

}  // namespace trireme
