// Durations of requests, for metrics.
#pragma once

#include <chrono>

namespace trireme {

inline double seconds_between(std::chrono::steady_clock::time_point from,
                              std::chrono::steady_clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

}  // namespace trireme
