#include "serving/distributed/rank_watch.h"

#include <algorithm>
#include <bit>

#include "engine/core/error.h"
#include "parallel/comm/liveness/process_state.h"

namespace trireme {
namespace {

constexpr double kFirst = 60, kTimesAverage = 10, kWeight = 0.1;

}  // namespace

RankWatch::RankWatch(std::vector<int> processes, bool on_this_machine, const SilenceLimits& limits,
                     Clock::time_point now)
    : processes_(std::move(processes)),
      on_this_machine_(on_this_machine),
      limits_(limits),
      last_(now),
      silent_(processes_.size()) {}

void RankWatch::received(size_t rank) { silent_[rank] = {}; }

std::string RankWatch::look(Clock::time_point now) {
  const Clock::duration passed = std::min<Clock::duration>(now - last_, kMaxCounted);
  last_ = now;
  for (size_t rank = 0; rank < silent_.size(); ++rank) {
    silent_[rank] += passed;
    if (silent_[rank] < limits_.stopped) continue;
    const std::string who = concat("rank ", rank, " (process ", processes_[rank], ")");
    if (on_this_machine_) {
      const ProcessState state = process_state(processes_[rank]);
      if (state.letter == 'T') return concat(who, " is stopped");
      if (state.letter == 't' || state.traced) {  // a debugger may take its time
        silent_[rank] = {};
        continue;
      }
    }
    if (silent_[rank] >= limits_.silent)
      return concat(who, " has sent nothing, not even a heartbeat, for ",
                    std::chrono::duration_cast<std::chrono::milliseconds>(silent_[rank]).count(),
                    " ms");
  }
  return {};
}

size_t StepDeadline::kind_of(int64_t tokens) {
  return static_cast<size_t>(
      std::bit_width(static_cast<uint64_t>(std::max<int64_t>(tokens, 1) - 1)));
}

std::chrono::duration<double> StepDeadline::allowed(int64_t tokens) const {
  const double average = average_[kind_of(tokens)];
  return std::chrono::duration<double>(average == 0 ? std::max(kFirst, least_)
                                                    : std::max(kTimesAverage * average, least_));
}

void StepDeadline::report_step_seconds(int64_t tokens, std::chrono::duration<double> time) {
  double& average = average_[kind_of(tokens)];
  average = average == 0 ? time.count() : average + kWeight * (time.count() - average);
}

}  // namespace trireme
