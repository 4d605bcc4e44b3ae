// Requests of a connection as they are read, with the time that each part of one may take. For .cpp
// files only (it includes Asio).
#pragma once

#include "serving/http/server/http_exchange.h"
#include "serving/http/server/request_reader.h"
#include "serving/http/server/timed_transport.h"

namespace trireme {

class RequestInput {
 public:
  template <class T>
  using Awaitable = TimedTransport::Awaitable<T>;
  enum class Head { kRead, kNone, kTooSlow };

  // Both outlive this object.
  RequestInput(TimedTransport& transport, const HttpLimits& limits)
      : transport_(transport), limits_(limits) {}

  // kRead: the reader is beyond the head, or has refused it.
  Awaitable<Head> read_head(RequestReader& reader);
  // Sets exchange.refusal where the body is refused or too slow. False: the connection is broken.
  Awaitable<bool> read_body(RequestReader& reader, HttpExchange& exchange);
  // Reads and drops the body of a refused request. False: it has not come.
  Awaitable<bool> discard_body(RequestReader& reader);
  // Small enough to be read for nothing, so that the connection stays.
  bool has_small_body(const RequestReader& reader, const HttpExchange& exchange) const;
  // The first request has had its response.
  void end_first() { first_ = false; }
  // No request that has not begun is wanted any more; where none has come yet, after
  // limits.unasked_time.
  void leave();

 private:
  std::chrono::milliseconds time_for_head() const;
  size_t feed(RequestReader& reader);

  TimedTransport& transport_;
  const HttpLimits& limits_;
  bool first_ = true;                  // request
  bool idle_ = false, leave_ = false;  // between requests; when it is, it ends or ends soon
};

}  // namespace trireme
