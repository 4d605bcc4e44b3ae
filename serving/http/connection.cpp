#include "serving/http/connection.h"

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <climits>

#include "engine/observe/log.h"
#include "serving/http/head_checks.h"
#include "serving/http/response_text.h"

namespace trireme {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

constexpr size_t kReadBytes = 8 << 10, kWriteBytes = 64 << 10;
constexpr size_t kDiscarded =
    64 << 10;  // of a refused request's body, so that the connection stays
constexpr std::chrono::milliseconds kLinger{1000};
constexpr size_t kLingerBytes = 1 << 20;
// How often a peer is looked for whose later requests are not read any more.
constexpr std::chrono::milliseconds kLook{100};
constexpr size_t kIdleBytes = 4 << 10;  // of a buffer that nothing is in

ApiError deadline_error() {
  return {504, "the request's own time has passed", "", "deadline_exceeded"};
}

// Calls one of them; what it throws ends the answer.
template <class Call>
PendingReply::Part part_of(const PendingReply& pending, const std::string& id, bool begun,
                           const Call& call) {
  try {
    return call();
  } catch (const std::exception& error) {
    const ApiError told = api_error_of(error, id);
    if (begun) return {.events = pending.error_event(told), .done = true, .failed = true};
    return {.whole = reply_of(told), .done = true};
  }
}

}  // namespace

// A request from its head to the end of its answer.
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

struct Connection::Job {
  HttpRequest request;
  const Route* route = nullptr;
  HttpAnswer answer;
  bool done = false;  // of the connection's thread

  void run() {
    try {
      answer = route->handle(request);
    } catch (const std::exception& error) {
      answer.reply = reply_of(error, request.id);
    }
    request.forget_body();
  }
};

struct Connection::Lent {
  Lent(std::shared_ptr<PendingReply> its_pending, std::function<void()> its_work)
      : pending(std::move(its_pending)), work(std::move(its_work)) {}

  std::shared_ptr<PendingReply> pending;  // which the work is of: it outlives the connection's own
  std::function<void()> work;
  std::exception_ptr thrown;
  bool done = false;  // of the connection's thread

  void run() noexcept {
    try {
      work();
    } catch (...) {
      thrown = std::current_exception();
    }
  }
};

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

// --- waiting --------------------------------------------------------------------------------------------

void Connection::notify() { wake_.cancel(); }

// Until it is notified, or until then. Both may have other reasons than what the caller waits for.
Connection::Awaitable<void> Connection::wait(Clock::time_point until) {
  wake_.expires_at(until);
  co_await wake_.async_wait(asio::as_tuple(asio::use_awaitable));
}

// Reads and writes that go on then are given up, and expired_ is set.
void Connection::arm(std::chrono::milliseconds limit) {
  expired_ = false;
  deadline_.expires_after(limit);
  deadline_.async_wait([self = shared_from_this(), number = ++alarm_](error_code error) {
    if (!error && number == self->alarm_) self->expire();
  });
}

// The same for a peer that takes nothing of what is written. One that takes a little now and then goes on, which the
// end of a write does not show: the system's own buffer is large, and has room again when much of it was taken.
void Connection::arm_against_stall(Clock::time_point since, int unsent) {
  const auto limit = state_->config.limits.stall_time;
  expired_ = false;
  deadline_.expires_after(limit / 4);
  deadline_.async_wait(
      [self = shared_from_this(), number = ++alarm_, since, unsent, limit](error_code error) {
        if (error || number != self->alarm_) return;
        const int left = unsent_bytes(self->transport_->socket().native_handle());
        const auto now = Clock::now();
        if (left < unsent) return self->arm_against_stall(now, left);
        if (now - since < limit) return self->arm_against_stall(since, unsent);
        self->expire();
      });
}

void Connection::expire() {
  expired_ = true;
  error_code ignored;
  transport_->socket().cancel(ignored);
  notify();
}

void Connection::disarm() {
  ++alarm_;
  expired_ = false;
  deadline_.cancel();
}

// While an answer is pending: so that a peer that goes away is noticed. What it sends meanwhile is kept, up to a
// bound.
void Connection::watch() {
  if (in_.size() < state_->config.limits.read_ahead) start_read();
}

// Nobody waits for an answer any more.
bool Connection::has_left() const {
  const bool reads = in_.size() < state_->config.limits.read_ahead;
  return gone_ || (!reads && has_hung_up(transport_->socket().native_handle()));
}

// While an answer is pending: until it is notified, until then, or until the peer has left.
Connection::Awaitable<void> Connection::wait_or_leave(Clock::time_point until) {
  watch();
  const bool looks = in_.size() >= state_->config.limits.read_ahead;
  co_await wait(looks ? std::min(until, Clock::now() + kLook) : until);
}

void Connection::start_read() {
  if (reading_ || gone_) return;
  reading_ = true;
  transport_->read(asio::buffer(space_.get(), kReadBytes),
                   [self = shared_from_this()](error_code error, size_t bytes) {
                     self->reading_ = false;
                     self->in_.append(self->space_.get(), bytes);
                     self->arrived_ += bytes;
                     if (error && error != asio::error::operation_aborted) self->gone_ = true;
                     self->notify();
                   });
}

Connection::Awaitable<bool> Connection::fill() {
  const uint64_t before = arrived_;
  while (arrived_ == before && !gone_ && !expired_ && !(idle_ && leave_ && !first_)) {
    start_read();
    co_await wait();
  }
  co_return arrived_ != before;
}

Connection::Awaitable<bool> Connection::write(const std::string& bytes) {
  for (size_t at = 0; at < bytes.size(); at += written_) {
    arm_against_stall(Clock::now(), INT_MAX);
    writing_ = true;
    transport_->write(asio::buffer(bytes.data() + at, std::min(bytes.size() - at, kWriteBytes)),
                      [self = shared_from_this()](error_code error, size_t written) {
                        self->writing_ = false;
                        self->written_ = written;
                        self->write_failed_ = static_cast<bool>(error);
                        self->notify();
                      });
    while (writing_) {
      if (!streaming_) {
        co_await wait();
        continue;
      }
      co_await wait_or_leave();
      if (has_left()) expire();
    }
    if (write_failed_) co_return false;
  }
  disarm();
  co_return true;
}

Connection::Awaitable<bool> Connection::perform(void (HttpTransport::*what)(HttpTransport::Done)) {
  struct Result {
    bool done = false, good = false;
  };
  const auto result = std::make_shared<Result>();
  (transport_.get()->*what)([self = shared_from_this(), result](error_code error, size_t) {
    *result = {true, !error};
    self->notify();
  });
  while (!result->done) co_await wait();
  co_return result->good;
}

// --- requests -------------------------------------------------------------------------------------------

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

// Until its first byte. Who has just connected when the server begins to drain cannot know of it: he is told.
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
  }
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

// --- answers --------------------------------------------------------------------------------------------

Connection::Awaitable<bool> Connection::answer(Exchange& exchange, RequestReader& reader) {
  auto job = std::make_shared<Job>();
  const HttpRequest& request = exchange.request;
  job->request = {.head = request.head,
                  .body = reader.take_body(),
                  .share = reader.take_share(),
                  .id = request.id,
                  .tenant = request.tenant,
                  .arrival = request.arrival,
                  .timeout = request.timeout};
  job->route = exchange.route;
  exchange.body_bytes = std::ssize(job->request.body);
  if (exchange.route->is_quick)
    job->run();
  else if (!co_await work(exchange, job))
    co_return false;
  if (exchange.refusal) co_return co_await reply(exchange, reply_of(*exchange.refusal));
  if (job->answer.pending == nullptr) co_return co_await reply(exchange, job->answer.reply);
  const std::shared_ptr<PendingReply> pending = std::move(job->answer.pending);
  streaming_ = true;
  const bool goes_on = co_await stream(exchange, pending);
  streaming_ = false;
  co_return goes_on;
}

// Has a worker do it, unless it is refused. False: the peer has left.
Connection::Awaitable<bool> Connection::work(Exchange& exchange, const std::shared_ptr<Job>& job) {
  try {
    if (job->route->admit) job->route->admit(job->request.head, job->request.tenant);
  } catch (const ApiError& error) {
    exchange.refusal = error;
    co_return true;
  }
  const auto ticket = state_->workers.push(
      exchange.body_bytes, [job, executor = wake_.get_executor(), weak = weak_from_this()] {
        job->run();
        asio::post(executor, [job, weak] {
          job->done = true;
          if (const auto self = weak.lock()) self->notify();
        });
      });
  if (ticket == 0) {
    exchange.refusal.emplace(503, "too many requests wait to be read", "", "server_overloaded");
    exchange.refusal->retry_after(1000);
    co_return true;
  }
  // Who only looks something up may have closed its half already.
  const bool is_look_up = exchange.route->method == "GET";
  const auto end = exchange.deadline();
  const auto left = [&] { return !is_look_up && has_left(); };
  while (!job->done && !left() && Clock::now() < end) co_await wait_or_leave(end);
  if (job->done) co_return true;
  state_->workers.withdraw(ticket);
  if (left()) co_return false;
  exchange.refusal = deadline_error();
  co_return true;
}

std::string Connection::head_of(Exchange& exchange, int status, const std::string& type,
                                const Headers& headers, const std::string& framing) const {
  exchange.status = status;
  return head_text({.status = status,
                    .content_type = type,
                    .request_id = exchange.request.id,
                    .headers = headers,
                    .framing = framing,
                    .keep = exchange.keep,
                    .version = exchange.request.head.version});
}

Connection::Awaitable<bool> Connection::reply(Exchange& exchange, const HttpReply& whole) {
  if (state_->draining) exchange.keep = false;
  std::string bytes = head_of(exchange, whole.status, whole.content_type, whole.headers,
                              concat("Content-Length: ", whole.body.size(), "\r\n"));
  const bool has_body = exchange.request.head.method != "HEAD";
  const bool by_itself = has_body && whole.body.size() > kWriteBytes;  // too much to be copied
  if (has_body && !by_itself) bytes += whole.body;
  bool written = co_await write(bytes);
  if (written && by_itself) written = co_await write(whole.body);
  co_return written&& exchange.keep;
}

// Until a worker has done what the answer wants done, until then, or until the peer has left. Where too many wait for the
// workers it is done here.
Connection::Awaitable<void> Connection::lend(std::shared_ptr<Lent> lent, Clock::time_point end) {
  const auto ticket =
      state_->workers.push(0, [lent, executor = wake_.get_executor(), weak = weak_from_this()] {
        lent->run();
        asio::post(executor, [lent, weak] {
          lent->done = true;
          if (const auto self = weak.lock()) self->notify();
        });
      });
  if (ticket == 0) {
    lent->run();
    lent->done = true;
  }
  while (!lent->done && !has_left() && Clock::now() < end) co_await wait_or_leave(end);
  if (!lent->done) state_->workers.withdraw(ticket);
}

// A pending answer, whole or by and by, until it is done or the peer has gone.
Connection::Awaitable<bool> Connection::stream(Exchange& exchange,
                                               const std::shared_ptr<PendingReply>& pending) {
  const auto wake = [executor = wake_.get_executor(), weak = weak_from_this()] {
    asio::post(executor, [weak] {
      if (const auto self = weak.lock()) self->notify();
    });
  };
  const std::string& id = exchange.request.id;
  const PendingReply::Part failed = part_of(*pending, id, false, [&]() -> PendingReply::Part {
    pending->start(wake);
    return {};
  });
  if (failed.whole) co_return co_await reply(exchange, *failed.whole);
  const bool chunks = exchange.request.head.version >= 11;
  const auto ping_time = state_->config.limits.ping_time;
  const auto end = exchange.deadline();
  bool begun = false;
  if (state_->draining) exchange.keep = false;
  auto ping = Clock::time_point::max();
  for (;;) {
    PendingReply::Part part = part_of(*pending, id, begun, [&] { return pending->take(); });
    if (part.work) {
      const auto lent = std::make_shared<Lent>(pending, std::move(part.work));
      co_await lend(lent, end);
      if (!lent->done && has_left()) co_return false;
      if (!lent->done) co_return co_await reply(exchange, reply_of(deadline_error()));
      if (lent->thrown == nullptr) continue;
      part = part_of(*pending, id, begun,
                     [&]() -> PendingReply::Part { std::rethrow_exception(lent->thrown); });
    }
    const auto now = Clock::now();
    if (!part.done && now >= end) {
      const ApiError error = deadline_error();
      if (!begun) co_return co_await reply(exchange, reply_of(error));
      part.events += pending->error_event(error);
      part.done = part.failed = true;
    }
    if (part.whole) co_return co_await reply(exchange, *part.whole);
    if (part.events.empty() && now >= ping) part.events = ": ping\n\n";
    if (!part.events.empty() || (part.done && begun)) {
      if (!chunks || part.failed) exchange.keep = false;
      std::string bytes;
      if (!begun)
        bytes = head_of(exchange, 200, "text/event-stream; charset=utf-8", {},
                        chunks ? "Transfer-Encoding: chunked\r\n" : "");
      if (!part.events.empty()) bytes += chunks ? chunk_text(part.events) : part.events;
      if (part.done && chunks) bytes += "0\r\n\r\n";
      if (!co_await write(bytes)) co_return false;
      begun = true;
      ping = Clock::now() + ping_time;
      if (!part.done) continue;
    }
    if (part.done) co_return exchange.keep && !state_->draining;
    if (has_left()) co_return false;
    co_await wait_or_leave(std::min(ping, end));
  }
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
