#include "serving/http/server/pending_response.h"

#include <algorithm>
#include <boost/asio/use_awaitable.hpp>

namespace trireme {
namespace {

ResponseProducer::Part too_late() { return {.whole = response_of(deadline_error()), .done = true}; }

}  // namespace

struct PendingResponse::PartWork final : WorkerTask {
  PartWork(std::shared_ptr<ResponseProducer> its_pending, std::function<void()> its_work)
      : pending(std::move(its_pending)), work(std::move(its_work)) {}
  void run() noexcept override {
    try {
      work();
    } catch (...) {
      thrown = std::current_exception();
    }
  }

  const std::shared_ptr<ResponseProducer> pending;  // owner of the work
  const std::function<void()> work;
  std::exception_ptr thrown = {};
};

PendingResponse::PendingResponse(std::shared_ptr<ResponseProducer> pending, HttpExchange& exchange,
                                 ResponseWriter& writer, TimedTransport& transport)
    : pending_(std::move(pending)),
      exchange_(exchange),
      writer_(writer),
      transport_(transport),
      end_(exchange.deadline()) {}

PendingResponse::Awaitable<bool> PendingResponse::run() {
  transport_.set_streaming(true);
  const bool stays = co_await write_parts();
  transport_.set_streaming(false);
  co_return stays;
}

// Converts an exception of a pending response to the part that ends the response.
ResponseProducer::Part PendingResponse::failure_of(const std::exception& error) {
  pending_->failed();
  const ApiError shown = api_error_of(error, exchange_.request.id);
  if (begun_) return {.events = pending_->error_event(shown), .done = true, .failed = true};
  return {.whole = response_of(shown), .done = true};
}

ResponseProducer::Part PendingResponse::failure_of(const std::exception_ptr& thrown) {
  try {
    std::rethrow_exception(thrown);
  } catch (const std::exception& error) {
    return failure_of(error);
  }
}

// Returns a part that is not done unless start() has thrown.
ResponseProducer::Part PendingResponse::start() {
  try {
    pending_->start(transport_.waker());
    return {};
  } catch (const std::exception& error) {
    return failure_of(error);
  }
}

ResponseProducer::Part PendingResponse::take() {
  try {
    return pending_->take();
  } catch (const std::exception& error) {
    return failure_of(error);
  }
}

// Waits until a worker has run it, the request's time limit has passed, or the peer has
// disconnected. Runs the work on this thread if the workers' queue is full.
PendingResponse::Awaitable<void> PendingResponse::run_at_worker(std::shared_ptr<PartWork> work) {
  WorkQueue& workers = exchange_.state.workers;
  const auto ticket = submit_task(workers, exchange_.request.tenant, 0, work, transport_);
  if (!ticket) {
    work->run();
    work->done = true;
  }
  while (!work->done && !transport_.peer_disconnected() && Clock::now() < end_)
    co_await transport_.wait_or_disconnect(end_);
  if (!work->done) workers.withdraw(ticket);
}

// Next part that has no work; absent: the peer has disconnected.
PendingResponse::Awaitable<std::optional<ResponseProducer::Part>> PendingResponse::next_part() {
  for (;;) {
    ResponseProducer::Part part = take();
    if (!part.work) co_return part;
    const auto work = std::make_shared<PartWork>(pending_, std::move(part.work));
    co_await run_at_worker(work);
    if (!work->done && transport_.peer_disconnected()) co_return std::nullopt;
    if (work->done && work->thrown == nullptr) continue;
    part = work->done ? failure_of(work->thrown) : too_late();
    co_return part;
  }
}

void PendingResponse::end_by_deadline(ResponseProducer::Part& part) const {
  const ApiError error = deadline_error();
  if (begun_)
    part.events += pending_->error_event(error);
  else
    part.whole = response_of(error);
  part.failed = begun_;
  part.done = true;
}

PendingResponse::Awaitable<bool> PendingResponse::write_parts() {
  const ResponseProducer::Part failed = start();
  if (failed.whole) co_return co_await writer_.write_whole(exchange_, *failed.whole);
  if (exchange_.state.draining) exchange_.keep = false;
  auto ping = Clock::time_point::max();
  for (;;) {
    std::optional<ResponseProducer::Part> part = co_await next_part();
    if (!part) co_return false;
    const auto now = Clock::now();
    if (!part->done && now >= end_) end_by_deadline(*part);
    if (part->whole) co_return co_await writer_.write_whole(exchange_, *part->whole);
    if (part->events.empty() && now >= ping) part->events = ": ping\n\n";
    if (!part->events.empty() || (part->done && begun_)) {
      if (!exchange_.is_chunked() || part->failed) exchange_.keep = false;
      if (!co_await writer_.write_events(exchange_, part->events, !begun_, part->done))
        co_return false;
      begun_ = true;
      ping = Clock::now() + exchange_.state.config.limits.ping_time;
      if (!part->done) continue;
    }
    if (part->done) co_return exchange_.keep && !exchange_.state.draining;
    if (transport_.peer_disconnected()) co_return false;
    co_await transport_.wait_or_disconnect(std::min(ping, end_));
  }
}

}  // namespace trireme
