// When a rank that is led over a side channel counts as lost though its process has not ended: it
// shows no life, or a step takes too long. Pure arithmetic on times that the caller gives.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace trireme {

// How long ranks may be silent (their period: kBeatPeriod). Time counts in which the observer
// itself ran.
struct SilenceLimits {
  std::chrono::milliseconds stopped{300};  // then a process of this machine is asked for its state
  std::chrono::milliseconds silent{2000};  // whatever its state
};

class RankWatch {
 public:
  using Clock = std::chrono::steady_clock;
  RankWatch(std::vector<int> processes, bool on_this_machine, const SilenceLimits& limits,
            Clock::time_point now);

  void heard(size_t rank);  // anything
  // Names the rank that is lost and why; empty: none is. Often, at least every kMostCounted.
  std::string look(Clock::time_point now);

 private:
  static constexpr std::chrono::milliseconds kMostCounted{200};
  std::vector<int> processes_;
  bool on_this_machine_;
  SilenceLimits limits_;
  Clock::time_point last_;
  std::vector<Clock::duration> silent_;
};

// How long a step may take before ranks that show life are given up all the same: ten times the
// moving average of steps with about as many tokens, at least ten seconds, for which other work may
// hold a machine up; a minute for the first of its kind, which plans memory, tunes kernels and
// records graphs.
class StepDeadline {
 public:
  using Seconds = std::chrono::duration<double>;
  explicit StepDeadline(Seconds least = Seconds(10)) : least_(least.count()) {}
  std::chrono::duration<double> allowed(int64_t tokens) const;
  void took(int64_t tokens, std::chrono::duration<double> time);

 private:
  static size_t kind_of(int64_t tokens);
  double least_;
  std::array<double, 64> average_{};  // seconds, by the power of two above the tokens; 0: none yet
};

}  // namespace trireme
