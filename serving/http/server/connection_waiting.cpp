// What a connection waits for: reads, writes, deadlines.
#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <climits>

#include "serving/http/server/connection.h"

namespace trireme {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

constexpr size_t kWriteBytes = 64 << 10;
// How often a peer is looked for whose later requests are not read any more.
constexpr std::chrono::milliseconds kLook{100};

}  // namespace

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

// The same for a peer that takes nothing of what is written. One that takes a little now and then
// goes on, which the end of a write does not show: the system's own buffer is large, and has room
// again when much of it was taken.
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

// While an answer is pending: so that a peer that goes away is noticed. What it sends meanwhile is
// kept, up to a bound.
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

}  // namespace trireme
