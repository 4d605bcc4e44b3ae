// Transport of a connection whose waits all have a bound: reads, writes and deadlines. For .cpp
// files only (it includes Asio).
//
// Runs in the one thread of its socket's context. Every wait is for one timer: reads, writes,
// alarms and other threads set their results and wake it.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "serving/http/server/limits.h"
#include "serving/http/server/transport.h"

namespace trireme {

// Kept by its handlers until they have run.
class TimedTransport : public std::enable_shared_from_this<TimedTransport> {
 public:
  using Clock = std::chrono::steady_clock;
  template <class T>
  using Awaitable = boost::asio::awaitable<T>;

  TimedTransport(std::unique_ptr<HttpTransport> transport, const HttpLimits& limits);

  boost::asio::any_io_executor executor() { return wake_.get_executor(); }
  boost::asio::ip::tcp::socket& socket() { return transport_->socket(); }
  // From any thread: ends the wait of wait_or_leave().
  std::function<void()> waker();
  void notify();

  // Reads and writes that have not ended by then are given up, and expired() is true.
  void arm(std::chrono::milliseconds limit);
  void disarm();
  bool expired() const { return expired_; }

  // Bytes that were read, for the reader to erase.
  std::string& received() { return in_; }
  void free_received();  // the memory of an empty buffer that was large
  // Reads more. False: nothing came before the peer or the time was gone, or no request is wanted.
  Awaitable<bool> fill();
  // While it is so, fill() does not wait.
  void set_unwanted(bool unwanted) { unwanted_ = unwanted; }

  // `bytes` outlives the wait. False: the peer has gone, or has taken nothing for too long.
  Awaitable<bool> write(const std::string& bytes);
  // While it is so, what is written is computed for a peer that must still be there.
  void set_streaming(bool streaming) { streaming_ = streaming; }

  // While a response is pending. has_left(): nobody waits for it any more. What the peer sends
  // meanwhile is kept, up to limits.read_ahead.
  bool has_left() const;
  // Until it is notified, until then, or until the peer has left; may return earlier.
  Awaitable<void> wait_or_leave(Clock::time_point until = Clock::time_point::max());

  Awaitable<bool> greet() { return perform(&HttpTransport::greet); }  // of TLS
  // Ends what is written and waits a moment for the peer to take it.
  Awaitable<void> take_leave();
  void close();

 private:
  Awaitable<void> wait(Clock::time_point until = Clock::time_point::max());
  void arm_against_stall(Clock::time_point since, int unsent);
  void expire();
  void start_read();
  void watch();
  Awaitable<bool> perform(void (HttpTransport::*what)(HttpTransport::Done));

  const std::unique_ptr<HttpTransport> transport_;
  const std::chrono::milliseconds stall_time_;
  const size_t read_ahead_;
  boost::asio::steady_timer wake_, deadline_;
  uint64_t alarm_ = 0;    // number of the deadline that counts
  bool expired_ = false;  // it has passed
  std::unique_ptr<char[]> space_;
  std::string in_;  // read, not taken
  uint64_t arrived_ = 0;
  bool reading_ = false, gone_ = false;  // gone: the peer sends nothing any more
  bool unwanted_ = false;
  bool writing_ = false, write_failed_ = false, streaming_ = false;
  size_t written_ = 0;
};

}  // namespace trireme
