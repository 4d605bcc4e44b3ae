// Liveness checks of ranks whose processes have not ended: a rank is silent, or a step takes too
// long. The caller passes the times; RankWatch also reads the state of processes on this machine.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace trireme {

// Limits on the silence of a rank, which sends a heartbeat every kBeatPeriod (rank_loop.h). Only
// time in which the observer itself ran counts.
struct SilenceLimits {
  // After this, a rank on this machine counts as lost if its process is stopped (state T).
  std::chrono::milliseconds stopped{300};
  // After this, any rank counts as lost, unless it runs on this machine and is being debugged.
  std::chrono::milliseconds silent{2000};
};

class RankWatch {
 public:
  using Clock = std::chrono::steady_clock;
  // processes: process ids by rank. on_this_machine: all ranks run here.
  RankWatch(std::vector<int> processes, bool on_this_machine, const SilenceLimits& limits,
            Clock::time_point now);

  void received(size_t rank);  // a message of any kind arrived
  // Returns a message with the first lost rank and the cause; empty: no rank is lost. Call at least
  // every kMaxCounted: longer gaps between two calls count only as that much silence.
  std::string look(Clock::time_point now);

 private:
  // Maximum time that one call counts as silence.
  static constexpr std::chrono::milliseconds kMaxCounted{200};
  std::vector<int> processes_;
  bool on_this_machine_;
  SilenceLimits limits_;
  Clock::time_point last_;
  std::vector<Clock::duration> silent_;
};

// Time limit of a step, after which the ranks count as lost although their processes run. It is ten
// times the moving average of steps with a similar number of tokens (equal log2, rounded up), but
// at least `least`, since other work may delay the machine. The first step of each size gets a
// minute, or `least` if that is longer: it plans memory, tunes kernels and records graphs.
class StepDeadline {
 public:
  using Seconds = std::chrono::duration<double>;
  explicit StepDeadline(Seconds least = Seconds(30)) : least_(least.count()) {}
  std::chrono::duration<double> allowed(int64_t tokens) const;
  void report_step_seconds(int64_t tokens, std::chrono::duration<double> time);

 private:
  static size_t kind_of(int64_t tokens);
  double least_;
  // Seconds, indexed by log2 of the token count, rounded up; 0: not measured yet.
  std::array<double, 64> average_{};
};

}  // namespace trireme
