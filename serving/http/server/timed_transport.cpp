#include "serving/http/server/timed_transport.h"

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <climits>

namespace trireme {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

constexpr size_t kReadBytes = 8 << 10;
constexpr size_t kWriteBytes = 64 << 10;
constexpr size_t kIdleBytes = 4 << 10;  // capacity that an empty buffer keeps
// Period of checks for a disconnected peer when its later requests are no longer read.
constexpr std::chrono::milliseconds kLook{100};
constexpr std::chrono::milliseconds kLinger{1000};
constexpr size_t kLingerBytes = 1 << 20;

}  // namespace

TimedTransport::TimedTransport(std::unique_ptr<HttpTransport> transport, const HttpLimits& limits)
    : transport_(std::move(transport)),
      stall_time_(limits.stall_time),
      read_ahead_(limits.read_ahead),
      wake_(transport_->socket().get_executor()),
      deadline_(transport_->socket().get_executor()),
      space_(std::make_unique<char[]>(kReadBytes)) {}

std::function<void()> TimedTransport::waker() {
  return [executor = executor(), weak = weak_from_this()] {
    asio::post(executor, [weak] {
      if (const auto self = weak.lock()) self->notify();
    });
  };
}

void TimedTransport::notify() { wake_.cancel(); }

// Waits until notified, or until `until`. Both may happen for other reasons than the caller's.
TimedTransport::Awaitable<void> TimedTransport::wait(Clock::time_point until) {
  wake_.expires_at(until);
  co_await wake_.async_wait(asio::as_tuple(asio::use_awaitable));
}

// After `limit`, cancels pending reads and writes and sets expired_.
void TimedTransport::arm(std::chrono::milliseconds limit) {
  expired_ = false;
  deadline_.expires_after(limit);
  deadline_.async_wait([self = shared_from_this(), number = ++alarm_](error_code error) {
    if (!error && number == self->alarm_) self->expire();
  });
}

// Same for a peer that reads nothing of the written bytes. A peer that reads a little now and then
// keeps its connection. Progress is measured by unacknowledged bytes, since a write completes only
// when much of the kernel's large buffer has been read.
void TimedTransport::arm_against_stall(Clock::time_point since, int unsent) {
  const auto limit = stall_time_;
  expired_ = false;
  deadline_.expires_after(limit / 4);
  deadline_.async_wait(
      [self = shared_from_this(), number = ++alarm_, since, unsent, limit](error_code error) {
        if (error || number != self->alarm_) return;
        const int left = unacknowledged_bytes(self->transport_->socket().native_handle());
        const auto now = Clock::now();
        if (left < unsent) return self->arm_against_stall(now, left);
        if (now - since < limit) return self->arm_against_stall(since, unsent);
        self->expire();
      });
}

void TimedTransport::expire() {
  expired_ = true;
  error_code ignored;
  transport_->socket().cancel(ignored);
  notify();
}

void TimedTransport::disarm() {
  ++alarm_;
  expired_ = false;
  deadline_.cancel();
}

// While a response is pending: reads, so that a disconnect is noticed. What the peer sends is kept,
// up to read_ahead_.
void TimedTransport::watch() {
  if (in_.size() < read_ahead_) start_read();
}

// The peer has disconnected.
bool TimedTransport::peer_disconnected() const {
  const bool reads = in_.size() < read_ahead_;
  return gone_ || (!reads && has_hung_up(transport_->socket().native_handle()));
}

// While a response is pending: waits until notified, until `until`, or until the peer has
// disconnected.
TimedTransport::Awaitable<void> TimedTransport::wait_or_disconnect(Clock::time_point until) {
  watch();
  const bool looks = in_.size() >= read_ahead_;
  co_await wait(looks ? std::min(until, Clock::now() + kLook) : until);
}

void TimedTransport::start_read() {
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

TimedTransport::Awaitable<bool> TimedTransport::fill() {
  const uint64_t before = arrived_;
  while (arrived_ == before && !gone_ && !expired_ && !unwanted_) {
    start_read();
    co_await wait();
  }
  co_return arrived_ != before;
}

TimedTransport::Awaitable<bool> TimedTransport::write(const std::string& bytes) {
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
      co_await wait_or_disconnect();
      if (peer_disconnected()) expire();
    }
    if (write_failed_) co_return false;
  }
  disarm();
  co_return true;
}

TimedTransport::Awaitable<bool> TimedTransport::perform(
    void (HttpTransport::*what)(HttpTransport::Done)) {
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

void TimedTransport::free_received() {
  if (in_.empty() && in_.capacity() > kIdleBytes) std::string().swap(in_);
}

// Makes sure that the last bytes arrive: closing a socket with unread bytes resets the connection,
// and the peer may lose the response.
TimedTransport::Awaitable<void> TimedTransport::shutdown_send() {
  if (gone_ || write_failed_) co_return;
  arm(kLinger);
  const uint64_t before = arrived_;
  if (co_await perform(&HttpTransport::shutdown_send)) {
    do in_.clear();
    while (arrived_ - before < kLingerBytes && co_await fill());
  }
  disarm();
}

void TimedTransport::close() {
  error_code ignored;
  transport_->socket().close(ignored);
}

}  // namespace trireme
