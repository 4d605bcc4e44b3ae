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
  // kRead: the head is complete, or the reader has rejected it. kTooSlow: it has begun, but did not
  // arrive in time. kNone: the peer has disconnected, or no head began in time or before leave().
  enum class Head { kRead, kNone, kTooSlow };

  // Both must outlive this object.
  RequestInput(TimedTransport& transport, const HttpLimits& limits)
      : transport_(transport), limits_(limits) {}

  Awaitable<Head> read_head(RequestReader& reader);
  // Reads the body. Sets exchange.refusal when it is rejected or too slow. False: the connection is
  // broken.
  Awaitable<bool> read_body(RequestReader& reader, HttpExchange& exchange);
  // Reads and drops the body of a rejected request. False: it did not arrive completely.
  Awaitable<bool> discard_body(RequestReader& reader);
  // True if the body is small enough to read and drop, which keeps the connection open.
  bool has_small_body(const RequestReader& reader, const HttpExchange& exchange) const;
  // Call once the response to the first request has been sent; later calls have no effect.
  void end_first() { first_ = false; }
  // From now on accepts no request that has not begun. Before the first request, waits
  // limits.unasked_time for one.
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
