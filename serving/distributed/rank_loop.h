// What a rank does that a scheduler elsewhere leads: it waits for a plan, computes it, and waits
// again.
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "serving/distributed/plan_codec.h"
#include "serving/distributed/rank_weights.h"

namespace trireme {

// How often a rank shows that its process runs.
inline constexpr std::chrono::milliseconds kBeatPeriod{100};

// Sends a beat every kBeatPeriod, from a thread of its own, until it is destroyed or the peer has
// gone.
class Heartbeat {
 public:
  explicit Heartbeat(SideChannel& channel);
  ~Heartbeat();
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

  // The number of the last plan computed, told with the next beats.
  void computed(uint64_t number) { computed_ = number; }

 private:
  void loop();

  SideChannel& channel_;
  std::atomic<uint64_t> computed_{0};
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;
  std::thread thread_;
};

// What a rank says of itself once it has loaded.
struct RankReady {
  PlanBounds bounds;
  std::string dtype, device;  // for people
};
std::vector<std::byte> encode_ready(const RankReady& ready);
RankReady decode_ready(std::span<const std::byte> bytes);

struct RankLoop {
  PlanBounds bounds;
  bool tells_outcomes = false;  // one rank does, of those whose scheduler computes nothing itself
  Heartbeat* heartbeat = nullptr;   // told of every plan
  ModelWeights* weights = nullptr;  // which the leader may change; absent: it does not
};
// Returns when the leader says that no plan comes any more. Error(kLostRank) when it goes without a
// word, BadMessage for plans that are not to be computed; what the executor throws passes.
void follow_plans(SideChannel& leader, StepExecutor& executor, const RankLoop& how);

}  // namespace trireme
