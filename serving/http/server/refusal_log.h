// Rate-limited log of requests refused for their API key: brute-force attempts are visible but do
// not fill the log.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>

#include "serving/api/api_error.h"

namespace trireme {

class RefusalLog {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr int kLines = 5;  // per period; the rest is only counted
  static constexpr std::chrono::seconds kPeriod{60};

  // Any thread. peer: an address; route: a path of the server's own table, or empty. Neither the
  // key nor anything else written by the client is logged.
  void note(const std::string& peer, const std::string& route, const ApiError& error,
            Clock::time_point now = Clock::now());

 private:
  std::mutex mutex_;
  Clock::time_point begun_{};  // start of the period
  int lines_ = 0;              // logged in the period
  // Refusals since the last logged line.
  int64_t unwritten_ = 0;
};

}  // namespace trireme
