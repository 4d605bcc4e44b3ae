// Time that a rank waits for communication: adds its own lifetime to TimeCategory::kCommunication
// of a profile, unless that is nullptr, and to a total.
#pragma once

#include <chrono>

#include "engine/core/profile.h"

namespace trireme {

class WaitScope {
 public:
  WaitScope(Profile* profile, double& seconds)
      : scope_(profile, TimeCategory::kCommunication), seconds_(seconds) {}
  ~WaitScope() {
    seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  }
  WaitScope(const WaitScope&) = delete;
  WaitScope& operator=(const WaitScope&) = delete;

 private:
  TimeScope scope_;
  double& seconds_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

}  // namespace trireme
