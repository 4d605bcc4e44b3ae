// Log of requests that were refused for their API key: who guesses keys is to be seen, and does not
// fill the log.
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
  static constexpr int kLines = 5;  // within each period; the rest is counted
  static constexpr std::chrono::seconds kPeriod{60};

  // peer: an address; route: a path of the server's own table, or empty. Neither the key nor
  // anything else that the client has written reaches the log. Any thread.
  void note(const std::string& peer, const std::string& route, const ApiError& error,
            Clock::time_point now = Clock::now());

 private:
  std::mutex mutex_;
  Clock::time_point begun_{};  // of the period
  int lines_ = 0;              // in it
  int64_t unwritten_ = 0;
};

}  // namespace trireme
