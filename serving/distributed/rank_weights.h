// Weight changes of serving ranks (serving/scheduler/model_weights.h), over their control channels:
//   leader -> rank: stage, with a StageRequest; rank -> leader: staged, empty or with the error
//   leader -> rank: use, between two plans: all switch at the same step; rank -> leader: used
//   leader -> rank: drop
// A rank stages and drops on a separate thread while it computes plans. One change at a time; all
// messages of a change have its number.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "serving/distributed/control_channel.h"
#include "serving/scheduler/model_weights.h"

namespace trireme {

// Task of a rank started by another process: what to load. The first message it receives.
struct RankTask {
  std::string model;      // checkpoint, or third-party model files
  std::string tokenizer;  // path, or "byte"
  // Paths by slot; "": empty slot. Empty list: the adapters of the command line.
  std::vector<std::string> adapters;
  // KV blocks in the cache: the same count as before a restart; 0: as many as memory allows.
  int64_t blocks = 0;
};
void send_task(ControlChannel& rank, const RankTask& task);
// Error(kLostRank) when no message arrives within `limit`, BadMessage for one of another kind.
RankTask receive_task(ControlChannel& leader, std::chrono::milliseconds limit);

struct StageRequest {
  int32_t slot = -1;  // adapter slot; -1: the model's weights
  std::string path;
};
std::vector<std::byte> encode_stage(const StageRequest& request);

// Weight changes on the side of a rank.
class WeightsFollower {
 public:
  // weights: nullptr: this rank has none to change. Both must outlive this object.
  WeightsFollower(ControlChannel& leader, ModelWeights* weights)
      : leader_(leader), weights_(weights) {}
  ~WeightsFollower();  // waits for staging to end
  WeightsFollower(const WeightsFollower&) = delete;
  WeightsFollower& operator=(const WeightsFollower&) = delete;

  // Executes the message; false: it is not about weights.
  bool take(const Message& message);

 private:
  void stage(uint64_t number, const StageRequest& request);
  void begin(std::function<void()> work);

  ControlChannel& leader_;
  ModelWeights* weights_;
  std::thread worker_;
};

// Control channels of rank 0, which computes too, to all other ranks. Used by one thread at a time.
class Followers {
 public:
  // channels: one for each other rank, which runs follow_plans().
  explicit Followers(std::vector<std::unique_ptr<ControlChannel>> channels)
      : channels_(std::move(channels)) {}

  // Sends to all ranks. Error(kLostRank) when a channel has closed.
  void send(MessageKind kind, uint64_t number, std::span<const std::byte> payload = {});
  void end() noexcept;  // no more plans

  void stage(const StageRequest& request);
  // Waits for all ranks. Returns the first error; empty: all have staged.
  std::string staged();
  void use();
  void used();  // waits until all ranks use the new weights
  void drop();

 private:
  std::string wait_for(MessageKind kind);
  std::vector<std::unique_ptr<ControlChannel>> channels_;
  uint64_t change_ = 0;  // number of the last change
};

}  // namespace trireme
