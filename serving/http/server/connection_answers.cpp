// How a connection's requests are answered: by the thread of the connection, by workers, and by and
// by.
#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "serving/http/server/connection_exchange.h"
#include "serving/http/server/response_text.h"

namespace trireme {
namespace {

namespace asio = boost::asio;

constexpr size_t kCopied = 64 << 10;  // of a body, at most, to be written with its head

ApiError deadline_error() {
  return {504, "the request's own time has passed", "", "deadline_exceeded"};
}

// Calls its start() or take(), or throws what its work threw; what is thrown ends the answer.
template <class Call>
PendingReply::Part part_of(PendingReply& pending, const std::string& id, bool begun,
                           const Call& call) {
  try {
    return call();
  } catch (const std::exception& error) {
    pending.failed();
    const ApiError told = api_error_of(error, id);
    if (begun) return {.events = pending.error_event(told), .done = true, .failed = true};
    return {.whole = reply_of(told), .done = true};
  }
}

}  // namespace

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
  const auto ticket =
      state_->workers.push(exchange.request.tenant, exchange.body_bytes,
                           [job, executor = wake_.get_executor(), weak = weak_from_this()] {
                             job->run();
                             asio::post(executor, [job, weak] {
                               job->done = true;
                               if (const auto self = weak.lock()) self->notify();
                             });
                           });
  if (!ticket) {
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
                              concat("Content-Length: ", whole.content().size(), "\r\n"));
  const bool has_body = exchange.request.head.method != "HEAD";
  const bool by_itself = has_body && whole.content().size() > kCopied;
  if (has_body && !by_itself) bytes += whole.content();
  bool written = co_await write(bytes);
  if (written && by_itself) written = co_await write(whole.content());
  co_return written&& exchange.keep;
}

// Until a worker has done what the answer wants done, until then, or until the peer has left. Where
// too many wait for the workers it is done here.
Connection::Awaitable<void> Connection::lend(std::string tenant, std::shared_ptr<Lent> lent,
                                             Clock::time_point end) {
  const auto ticket = state_->workers.push(
      tenant, 0, [lent, executor = wake_.get_executor(), weak = weak_from_this()] {
        lent->run();
        asio::post(executor, [lent, weak] {
          lent->done = true;
          if (const auto self = weak.lock()) self->notify();
        });
      });
  if (!ticket) {
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
      co_await lend(exchange.request.tenant, lent, end);
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

}  // namespace trireme
