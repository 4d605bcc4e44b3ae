// Progress display of a copy: bytes, speed and remaining time. On a terminal it is a status line at
// the bottom, elsewhere a log line every 30 seconds.
#pragma once

#include <chrono>
#include <string>

#include "transformer/formats/file_tensor.h"

namespace trireme {

class CopyStatus {
 public:
  // what: first word of the line, such as the verb; must outlive this object.
  explicit CopyStatus(const char* what) : what_(what), start_(Clock::now()), logged_(start_) {}
  ~CopyStatus();  // removes the status line
  CopyStatus(const CopyStatus&) = delete;
  CopyStatus& operator=(const CopyStatus&) = delete;

  CopyProgress progress();  // callback of the copy; must not outlive this object
  // Seconds since construction.
  double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

 private:
  using Clock = std::chrono::steady_clock;
  void update(int64_t done, int64_t total);
  const char* what_;
  int64_t first_ = -1;  // bytes at the first update, which do not count for the speed
  Clock::time_point start_, began_, drawn_, logged_;
};

std::string speed_text(double bytes_per_second);  // "0.53 GB/s"

}  // namespace trireme
