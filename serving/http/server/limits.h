// Limits on what a server accepts from clients. A request above a limit is rejected, never
// truncated.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

#include "serving/http/server/work_queue.h"

namespace trireme {

struct HttpLimits {
  // Per request, sizes in bytes (lines without their CRLF); each with the status of the rejection.
  size_t request_line = 8 << 10;            // 414
  size_t header = 8 << 10;                  // one header line: 431, as the two below
  size_t headers_bytes = 64 << 10;          // all header lines together
  size_t headers = 100;                     // number of header lines
  size_t body = 8 << 20;                    // 413
  int64_t all_bodies = int64_t{512} << 20;  // bodies of all requests together: 503
  WorkLimits work = {};                     // work waiting for the workers: 503

  // head_time also limits the TLS handshake and the wait for a connection's first byte. When
  // one of these two, idle_time, unasked_time or stall_time is exceeded, the connection is closed
  // without an error response.
  std::chrono::milliseconds head_time{10'000};  // for the head, from its first byte: 408
  std::chrono::milliseconds body_time{30'000};  // for the whole body: 408
  std::chrono::milliseconds idle_time{60'000};  // between requests
  // For the first byte of a connection's first request once draining has begun.
  std::chrono::milliseconds unasked_time{1000};
  std::chrono::milliseconds stall_time{30'000};  // without progress when writing to a client
  std::chrono::milliseconds ping_time{15'000};   // silence after which a stream gets an SSE comment

  // Connections above these get 503, with TLS no response.
  int64_t connections = 8192;
  int64_t connections_per_address = 512;  // for IPv6: per /64 prefix
  size_t read_ahead = 64 << 10;           // bytes of later requests buffered while one runs
};

}  // namespace trireme
