// Writer of a connection's responses: complete ones, and streams of events. For .cpp files only
// (includes Asio).
#pragma once

#include <string>

#include "serving/http/server/http_exchange.h"
#include "serving/http/server/timed_transport.h"

namespace trireme {

class ResponseWriter {
 public:
  template <class T>
  using Awaitable = TimedTransport::Awaitable<T>;

  // Both must outlive this object.
  ResponseWriter(TimedTransport& transport, const ServerState& state)
      : transport_(transport), state_(state) {}

  // Writes a complete response, for HEAD without its body. Returns whether the connection stays
  // open: false also if the write has failed.
  Awaitable<bool> write_whole(HttpExchange& exchange, const HttpResponse& whole);
  // Writes events of a stream, possibly none: after the head if `begins`, with the end of the
  // stream if `ends`. False: the write has failed (TimedTransport::write).
  Awaitable<bool> write_events(HttpExchange& exchange, const std::string& events, bool begins,
                               bool ends);

 private:
  static std::string head_of(HttpExchange& exchange, int status, const std::string& type,
                             const Headers& headers, const std::string& framing);

  TimedTransport& transport_;
  const ServerState& state_;
};

}  // namespace trireme
