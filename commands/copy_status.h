// A line at the bottom of a terminal while something is copied: what, how much of it, how long it will take.
#pragma once

#include <chrono>

#include "transformer/file_tensor.h"

namespace trireme {

class CopyStatus {
 public:
  explicit CopyStatus(const char* what) : what_(what), start_(Clock::now()) {}
  ~CopyStatus();  // removes the line
  CopyStatus(const CopyStatus&) = delete;
  CopyStatus& operator=(const CopyStatus&) = delete;

  CopyProgress progress();  // valid while this lives
  double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

 private:
  using Clock = std::chrono::steady_clock;
  void update(int64_t done, int64_t total);
  const char* what_;
  Clock::time_point start_, drawn_;
};

}  // namespace trireme
