// Timing for the bench commands.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

namespace trireme {

// Seconds of one call of f: the median of `samples` averages over as many calls as fill
// `sample_seconds`. The first call, which makes primitives and touches pages, does not count.
template <class F>
double median_seconds(int samples, double sample_seconds, F&& f) {
  using Clock = std::chrono::steady_clock;
  const auto time = [&](int64_t calls) {
    const auto start = Clock::now();
    for (int64_t i = 0; i < calls; ++i) f();
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  f();
  const double once = std::max(1e-9, time(1));
  const auto calls = std::max<int64_t>(1, static_cast<int64_t>(sample_seconds / once));
  std::vector<double> seconds;
  for (int i = 0; i < samples; ++i) seconds.push_back(time(calls) / static_cast<double>(calls));
  std::ranges::nth_element(seconds, seconds.begin() + samples / 2);
  return seconds[static_cast<size_t>(samples) / 2];
}

}  // namespace trireme
