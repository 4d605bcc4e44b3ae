// Reader of a connection's requests, with a time limit for each part. For .cpp files only (includes
// Asio).
#pragma once

#include "serving/http/server/http_exchange.h"
#include "serving/http/server/request_reader.h"
#include "serving/http/server/timed_transport.h"

namespace trireme {

class RequestInput {
 public:
  template <class T>
  using Awaitable = TimedTransport::Awaitable<T>;
  // Result of read_head(). kRead: the head is complete, or the reader has rejected it. kTooSlow:
  // the head has begun, but did not arrive in time. kNone: the peer has disconnected, or no head
  // began in time (idle_time; head_time for the first) or before leave() ended the wait.
  enum class Head { kRead, kNone, kTooSlow };

  // Both must outlive this object.
  RequestInput(TimedTransport& transport, const HttpLimits& limits)
      : transport_(transport), limits_(limits) {}

  Awaitable<Head> read_head(RequestReader& reader);
  // Reads the body; first sends 100 Continue if the client waits for it. Sets exchange.refusal when
  // the body is rejected or too slow. False: the connection is broken.
  Awaitable<bool> read_body(RequestReader& reader, HttpExchange& exchange);
  // Reads and drops the body of a rejected request, for at most body_time. False: it did not arrive
  // completely, or is malformed.
  Awaitable<bool> discard_body(RequestReader& reader);
  // True if the body is small enough to read and drop, which keeps the connection open: its
  // Content-Length is known, is at most 64 KiB, and the client does not wait for 100 Continue.
  bool has_small_body(const RequestReader& reader, const HttpExchange& exchange) const;
  // Call once the response to the first request has been sent; later calls have no effect.
  void end_first() { first_ = false; }
  // From now on accepts no request that has not begun, except the first of the connection, for
  // which read_head() waits HttpLimits::unasked_time.
  void leave();

 private:
  std::chrono::milliseconds time_for_head() const;
  size_t feed(RequestReader& reader);

  TimedTransport& transport_;
  const HttpLimits& limits_;
  bool first_ = true;                  // no request has been served yet
  bool idle_ = false, leave_ = false;  // idle_: between requests; leave_: end when idle
};

}  // namespace trireme
