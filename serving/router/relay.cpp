#include "serving/router/relay.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "engine/observe/log.h"
#include "serving/router/forwarding.h"

namespace trireme {
namespace {

namespace asio = boost::asio;

constexpr int kUnready = 503;  // status of a server that cannot run the request now
constexpr size_t kMaxRefusalBytes = 64 << 10;
constexpr char kTooManyResponses[] = "the router buffers too many large responses";

class PendingRelay final : public ResponseProducer {
 public:
  explicit PendingRelay(std::shared_ptr<Relay> relay) : relay_(std::move(relay)) {}
  PendingRelay(const PendingRelay&) = delete;
  PendingRelay& operator=(const PendingRelay&) = delete;
  ~PendingRelay() override { relay_->cancel(); }
  void start(std::function<void()> wake) override { relay_->start(std::move(wake)); }
  Part take() override { return relay_->take(); }
  std::string error_event(const ApiError& error) const override {
    return concat("data: ", error_body(error), "\n\n");
  }

 private:
  std::shared_ptr<Relay> relay_;
};

// Counts a request as running at its server while it exists.
class UnderWay {
 public:
  UnderWay(RelayState& state, size_t server, Relay& relay)
      : state_(state), server_(server), relay_(relay) {
    state_.under_way[server_].insert(&relay_);
  }
  ~UnderWay() {
    state_.under_way[server_].erase(&relay_);
    state_.choice.end(server_);
    state_.metrics.ended(server_, end);
  }
  UnderWay(const UnderWay&) = delete;
  UnderWay& operator=(const UnderWay&) = delete;
  AttemptEnd end = AttemptEnd::kCancelled;

 private:
  RelayState& state_;
  size_t server_;
  Relay& relay_;
};

bool is_stream(const ResponseHead& head) {
  const std::string* type = head.find("content-type");
  // Compressed data cannot be split into events.
  return head.status == 200 && type != nullptr && type->starts_with("text/event-stream") &&
         head.find("content-encoding") == nullptr;
}

HttpResponse response_of(const ResponseHead& head, std::string body) {
  const std::string* type = head.find("content-type");
  return {.status = head.status,
          .body = std::move(body),
          .content_type = type == nullptr ? "application/octet-stream" : *type,
          .headers = forwarded_headers(head.headers)};
}

}  // namespace

std::unique_ptr<ResponseProducer> make_pending(std::shared_ptr<Relay> relay) {
  return std::make_unique<PendingRelay>(std::move(relay));
}

Relay::Relay(RelayState& state, HttpRequest request, std::vector<uint64_t> blocks)
    : state_(state),
      request_(std::move(request)),
      blocks_(std::move(blocks)),
      held_(state.limits.responses.whole, state.limits.responses.always,
            state.all_responses->of(request_.tenant)),
      room_(state.executor) {}

// --- client's thread ---

void Relay::start(std::function<void()> wake) {
  {
    const std::lock_guard lock(mutex_);
    wake_ = std::move(wake);
  }
  asio::co_spawn(
      state_.executor, [self = shared_from_this()] { return self->run(); }, asio::detached);
}

ResponseProducer::Part Relay::take() {
  ResponseProducer::Part out;
  {
    const std::lock_guard lock(mutex_);
    std::swap(out, part_);
    part_.done = out.done;
  }
  if (!out.events.empty() && !out.done)
    asio::post(state_.executor, [self = shared_from_this()] { self->room_.cancel(); });
  return out;
}

void Relay::cancel() {
  {
    const std::lock_guard lock(mutex_);
    wake_ = nullptr;
    cancelled_ = true;
  }
  asio::post(state_.executor, [self = shared_from_this()] { self->break_off(); });
}

// --- state's thread ---

void Relay::break_off() {
  if (client_ != nullptr) client_->close();
  room_.cancel();
}

bool Relay::is_cancelled() {
  const std::lock_guard lock(mutex_);
  return cancelled_;
}

// False: the client has disconnected.
bool Relay::put_events(const std::string& events, bool done, bool failed) {
  const std::lock_guard lock(mutex_);
  if (cancelled_) return false;
  passed_ = passed_ || !events.empty();
  part_.events += events;
  part_.done = done;
  part_.failed = failed;
  wake_();
  return true;
}

void Relay::put_whole(HttpResponse response) {
  const std::lock_guard lock(mutex_);
  if (cancelled_) return;
  part_.whole = std::move(response);
  part_.done = true;
  wake_();
}

void Relay::fail(const ApiError& error) {
  if (passed_)
    put_events(concat("data: ", error_body(error), "\n\n"), true, true);
  else
    put_whole(trireme::response_of(error));
}

Relay::Awaitable<void> Relay::run() {
  try {
    co_await relay();
    request_.forget_body();
  } catch (const std::exception& error) {
    log_error("request ", request_.id, ": ", error.what());
    fail(ApiError(500, concat("internal error of the router; request ", request_.id), "",
                  "internal_error"));
  }
}

Relay::Awaitable<void> Relay::relay() {
  ServerSet tried = 0;
  for (bool first = true; !is_cancelled(); first = false) {
    const auto chosen = state_.choice.begin(blocks_, tried);
    if (!chosen) {
      if (refused_) {
        put_whole(std::move(refusal_));
      } else {
        ApiError error(503, "no server responds", "", "no_server");
        error.retry_after(1000);
        fail(error);
      }
      co_return;
    }
    if (first) state_.metrics.chosen(chosen->affinity);
    tried |= ServerSet{1} << chosen->server;
    if (co_await attempt(chosen->server) == Next::kDone) co_return;
    state_.metrics.retried(chosen->server);
  }
}

Relay::Awaitable<Relay::Next> Relay::attempt(size_t server) {
  UnderWay under_way(state_, server, *this);
  ClientPool& pool = *state_.pools[server];
  const std::string sent_head =
      forwarded_head(request_, pool.server().authority(), pool.server().base);
  bool unready = false;
  try {
    const ResponseHead head = co_await pool.send(
        sent_head, forwarded_body(request_), state_.limits.connect, state_.limits.silence, client_);
    unready = head.status == kUnready;
    const Next next = co_await forward_response(server, head);
    under_way.end = next == Next::kDone ? AttemptEnd::kAnswered : AttemptEnd::kUnready;
    pool.give_back(std::move(client_));
    client_ = nullptr;
    co_return next;
  } catch (const ClientError& error) {
    if (is_cancelled()) co_return Next::kDone;
    log_warning("request ", request_.id, ": ", error.what());
    const bool reached = client_->is_connected();
    const bool begun = client_->has_response() && !unready;
    client_ = nullptr;
    under_way.end = !reached            ? AttemptEnd::kConnect
                    : error.timed_out() ? AttemptEnd::kTimeout
                                        : AttemptEnd::kBroken;
    if (!reached) state_.on_unreachable(server, error.what());
    if (!begun && under_way.end != AttemptEnd::kTimeout) co_return Next::kOtherServer;
    fail(error.timed_out()
             ? ApiError(504, "the server was silent for longer than the router's limit", "",
                        "server_timeout")
             : ApiError(502, "the response of the server broke off or was invalid", "",
                        "server_lost"));
  } catch (const ApiError& error) {  // the router's own error: the rest of the response is not read
    client_ = nullptr;
    under_way.end = AttemptEnd::kAnswered;
    fail(error);
  }
  co_return Next::kDone;
}

// Accounts for the buffered bytes of the response. ApiError above a limit.
void Relay::hold(const std::string& bytes) {
  const int64_t size = std::ssize(bytes);
  if (size > held_.max_bytes())  // it would be as large from another server
    throw ApiError(
        502,
        concat("the response is larger than ", held_.max_bytes(), " bytes: set stream to true"), "",
        "answer_too_large");
  if (!held_.set(size))
    throw ApiError(503, kTooManyResponses, "", "server_overloaded").retry_after(1000);
}

Relay::Awaitable<std::string> Relay::read_whole() {
  std::string out;
  while (co_await client_->read_body(out, state_.limits.silence)) hold(out);
  co_return out;
}

Relay::Awaitable<Relay::Next> Relay::forward_response(size_t server, const ResponseHead& head) {
  const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - request_.arrival;
  state_.metrics.first_byte(server, waited.count());
  if (is_stream(head)) {
    co_await pass_events();
    co_return Next::kDone;
  }
  const bool unready = head.status == kUnready;
  std::string body;  // assigned: GCC 12 destroys results of co_await within ?: twice
  if (unready)
    body = co_await read_whole_body(*client_, kMaxRefusalBytes, state_.limits.silence);
  else
    body = co_await read_whole();
  HttpResponse response = response_of(head, std::move(body));
  if (unready) {
    refused_ = true;
    refusal_ = std::move(response);
    co_return Next::kOtherServer;
  }
  put_whole(std::move(response));
  co_return Next::kDone;
}

Relay::Awaitable<void> Relay::pass_events() {
  const auto is_full = [this] {
    const std::lock_guard lock(mutex_);
    return part_.events.size() >= state_.limits.buffered_events && !cancelled_;
  };
  std::string pending;
  for (size_t seen = 0; co_await client_->read_body(pending, state_.limits.silence);
       seen = pending.size()) {
    hold(pending);
    std::string events = take_whole_events(pending, seen);
    if (events.empty()) continue;
    if (!put_events(events, false)) throw ClientError("the client closed the connection", false);
    request_.forget_body();  // it can no longer be retried
    while (is_full()) {
      room_.expires_at(std::chrono::steady_clock::time_point::max());
      co_await room_.async_wait(asio::as_tuple(asio::use_awaitable));
      if (client_->is_closed()) break;
    }
  }
  if (passed_ || !pending.empty())
    put_events(pending, true);
  else  // an empty stream
    put_whole({.body = "", .content_type = "text/event-stream; charset=utf-8"});
}

}  // namespace trireme
