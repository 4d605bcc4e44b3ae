// Status of a copy in progress: name, amount, speed, remaining time. A line at the bottom of a
// terminal; elsewhere a log line twice a minute.
#pragma once

#include <chrono>
#include <string>

#include "transformer/formats/file_tensor.h"

namespace trireme {

class CopyStatus {
 public:
  explicit CopyStatus(const char* what) : what_(what), start_(Clock::now()), logged_(start_) {}
  ~CopyStatus();  // removes the line
  CopyStatus(const CopyStatus&) = delete;
  CopyStatus& operator=(const CopyStatus&) = delete;

  CopyProgress progress();  // valid while this object lives
  double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

 private:
  using Clock = std::chrono::steady_clock;
  void update(int64_t done, int64_t total);
  const char* what_;
  int64_t first_ = -1;  // bytes at the first update, not counted for the speed
  Clock::time_point start_, began_, drawn_, logged_;
};

std::string speed_text(double bytes_per_second);  // "0.53 GB/s"

}  // namespace trireme
