// Transport of a connection, with time limits on waits for the peer. For .cpp files only (includes
// Asio).
//
// Runs on the single thread of its socket's io_context. Every wait uses the same timer. Completed
// reads and writes, an expired deadline and the waker() of other threads end it by notify().
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

// Pending handlers own this object until they have run.
class TimedTransport : public std::enable_shared_from_this<TimedTransport> {
 public:
  using Clock = std::chrono::steady_clock;
  template <class T>
  using Awaitable = boost::asio::awaitable<T>;

  TimedTransport(std::unique_ptr<HttpTransport> transport, const HttpLimits& limits);

  boost::asio::any_io_executor executor() { return wake_.get_executor(); }
  boost::asio::ip::tcp::socket& socket() { return transport_->socket(); }
  // Returns a function that calls notify() on the connection's thread, callable from any thread and
  // after this object's destruction.
  std::function<void()> waker();
  void notify();  // ends the current wait

  // Sets the only deadline, after `limit`, and resets expired(). When it passes, cancels pending
  // reads and writes and sets expired(). write() replaces it.
  void arm(std::chrono::milliseconds limit);
  void disarm();
  bool expired() const { return expired_; }

  // Received bytes; the reader erases those that it consumes.
  std::string& received() { return in_; }
  void free_received();  // frees the capacity of an empty buffer
  // Waits until more bytes have arrived. False: the peer closed its sending half or the connection,
  // the deadline passed, or set_unwanted(true) is in effect, before any arrived.
  Awaitable<bool> fill();
  // While set, fill() does not wait.
  void set_unwanted(bool unwanted) { unwanted_ = unwanted; }

  // Writes all bytes, which must outlive the wait. False: the peer has disconnected, or has read
  // nothing for HttpLimits::stall_time.
  Awaitable<bool> write(const std::string& bytes);
  // While set, write() also fails once the peer has closed its sending half (peer_disconnected()).
  void set_streaming(bool streaming) { streaming_ = streaming; }

  // For use while a response is pending: true if the peer has closed the connection, or only its
  // sending half. Bytes that the peer sends meanwhile are buffered, up to about
  // HttpLimits::read_ahead.
  bool peer_disconnected() const;
  // Waits until notified, until `until`, or until the peer has disconnected; may return earlier.
  Awaitable<void> wait_or_disconnect(Clock::time_point until = Clock::time_point::max());

  // TLS handshake. False: it has failed, or the deadline has passed.
  Awaitable<bool> handshake() { return perform(&HttpTransport::handshake); }
  // Shuts down the sending direction, then drops received bytes until the peer disconnects, for at
  // most a second and about 1 MiB. A close with unread bytes would reset the connection, and lose
  // the response.
  Awaitable<void> shutdown_send();
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
  uint64_t alarm_ = 0;    // number of the current deadline
  bool expired_ = false;  // the current deadline has passed
  std::unique_ptr<char[]> space_;
  std::string in_;                       // received, not consumed
  uint64_t arrived_ = 0;                 // bytes received so far
  bool reading_ = false, gone_ = false;  // gone_: the peer has stopped sending
  bool unwanted_ = false;
  bool writing_ = false, write_failed_ = false, streaming_ = false;
  size_t written_ = 0;  // bytes of the last completed write to the socket
};

}  // namespace trireme
