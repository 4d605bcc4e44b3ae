// Rate-limited log of requests refused with 401 or 403 (but not of CORS preflights): brute-force
// attempts are visible but do not fill the log.
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

  // Logs or counts a refusal. peer: an address; route: path of the matching route, empty if none.
  // Logs neither the key nor any other text of the client. Any thread.
  void note(const std::string& peer, const std::string& route, const ApiError& error,
            Clock::time_point now = Clock::now());

 private:
  std::mutex mutex_;
  Clock::time_point begun_{};  // start of the period
  int lines_ = 0;              // logged in the period
  int64_t unwritten_ = 0;      // refusals counted but not logged since the last line
};

}  // namespace trireme
