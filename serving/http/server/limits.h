// What a server takes from clients at most. What is exceeded is refused, not cut.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

#include "serving/http/server/work_queue.h"

namespace trireme {

struct HttpLimits {
  // Of a request, bytes without line ends.
  size_t request_line = 8 << 10;  // 414
  size_t header = 8 << 10;        // one: 431, as the two below
  size_t headers_bytes = 64 << 10;
  size_t headers = 100;
  size_t body = 8 << 20;                    // 413
  int64_t all_bodies = int64_t{512} << 20;  // of all requests together: 503
  WorkLimits work = {};                     // that waits for the workers: 503

  std::chrono::milliseconds head_time{10'000};   // from the first byte; 408
  std::chrono::milliseconds body_time{30'000};   // 408
  std::chrono::milliseconds idle_time{60'000};   // between requests
  std::chrono::milliseconds unasked_time{1000};  // for a first request, once the server drains
  std::chrono::milliseconds stall_time{30'000};  // a client that takes nothing of its answer
  std::chrono::milliseconds ping_time{15'000};   // a silent stream gets a comment

  int64_t connections = 8192;             // 503
  int64_t connections_per_address = 512;  // of IPv6: per /64
  size_t read_ahead = 64 << 10;           // bytes of later requests while one is answered
};

}  // namespace trireme
