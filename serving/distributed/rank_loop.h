// Main loop of a rank whose scheduler runs in another process: wait for a plan, compute it, repeat.
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "serving/distributed/plan_codec.h"
#include "serving/distributed/rank_weights.h"

namespace trireme {

// Period of the heartbeats of a rank.
inline constexpr std::chrono::milliseconds kBeatPeriod{100};

// Heartbeat of a rank, sent every kBeatPeriod from its own thread until this object is destroyed or
// sending fails.
class Heartbeat {
 public:
  explicit Heartbeat(ControlChannel& channel);
  ~Heartbeat();
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

  // Sets the number of the last plan computed, which the next heartbeats report.
  void computed(uint64_t number) { computed_ = number; }

 private:
  void loop();

  ControlChannel& channel_;
  std::atomic<uint64_t> computed_{0};
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;
  std::thread thread_;
};

// Message of a rank to its leader after loading: bounds of its plans, dtype and device.
struct RankReady {
  PlanBounds bounds;
  std::string dtype, device;  // for log lines
};
std::vector<std::byte> encode_ready(const RankReady& ready);
RankReady decode_ready(std::span<const std::byte> bytes);

struct RankLoopOptions {
  PlanBounds bounds;
  bool reports_outputs = false;     // set on one rank if the scheduler's process is not a rank
  Heartbeat* heartbeat = nullptr;   // reports the last plan computed; may be nullptr
  ModelWeights* weights = nullptr;  // weights that the leader may replace; nullptr: none
};
// Runs the leader's plans and weight changes until it sends kEnd. Error(kLostRank) when the channel
// closes without kEnd, BadMessage for an invalid plan or message. Exceptions of the executor and of
// ModelWeights::use() propagate.
void follow_plans(ControlChannel& leader, StepExecutor& executor, const RankLoopOptions& how);

}  // namespace trireme
