// Responses of a connection: whole ones, and streams of events. For .cpp files only (it includes
// Asio).
#pragma once

#include <string>

#include "serving/http/server/http_exchange.h"
#include "serving/http/server/timed_transport.h"

namespace trireme {

class ResponseWriter {
 public:
  template <class T>
  using Awaitable = TimedTransport::Awaitable<T>;

  // Both outlive this object.
  ResponseWriter(TimedTransport& transport, const ServerState& state)
      : transport_(transport), state_(state) {}

  // True: the connection stays.
  Awaitable<bool> write_whole(HttpExchange& exchange, const HttpReply& whole);
  // Events of a stream, which may be none: with its head where it begins, with its end where it
  // ends. False: the peer has gone.
  Awaitable<bool> write_events(HttpExchange& exchange, const std::string& events, bool begins,
                               bool ends);

 private:
  static std::string head_of(HttpExchange& exchange, int status, const std::string& type,
                             const Headers& headers, const std::string& framing);

  TimedTransport& transport_;
  const ServerState& state_;
};

}  // namespace trireme
