// Weight changes of serving ranks (serving/scheduler/model_weights.h), over their control channels:
//   leader -> rank: stage, with a StageRequest; rank -> leader: staged, empty or with the error
//   leader -> rank: use, between two plans: all switch at the same step; rank -> leader: used
//   leader -> rank: drop
//
// A rank stages and drops weights on a separate thread while it computes plans. There is one change
// at a time; all messages of a change have its number.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "serving/distributed/messages.h"
#include "serving/scheduler/model_weights.h"

namespace trireme {

// Task of a rank that another process has started: the model to load. The first message to the rank
// after the handshake.
struct RankTask {
  std::string model;      // checkpoint, or third-party model files
  std::string tokenizer;  // path, or "byte"
  // Adapter paths by slot; "": empty slot. Empty list: the adapters of the command line.
  std::vector<std::string> adapters;
  // KV blocks in the cache. After a restart the number of the first start; 0: as many as memory
  // allows.
  int64_t blocks = 0;
};
void send_task(ControlChannel& rank, const RankTask& task);
// Error(kLostRank) when no message arrives within `limit` or the channel has closed, BadMessage for
// a message of another kind or an invalid one.
RankTask receive_task(ControlChannel& leader, std::chrono::milliseconds limit);

struct StageRequest {
  int32_t slot = -1;  // adapter slot; -1: the model's weights
  std::string path;
};
std::vector<std::byte> encode_stage(const StageRequest& request);

// Rank's side of weight changes.
class WeightsFollower {
 public:
  // weights: nullptr: this rank has none to change, and take() rejects changes. Both must outlive
  // this object.
  WeightsFollower(ControlChannel& leader, ModelWeights* weights)
      : leader_(leader), weights_(weights) {}
  ~WeightsFollower();  // waits for the staging thread
  WeightsFollower(const WeightsFollower&) = delete;
  WeightsFollower& operator=(const WeightsFollower&) = delete;

  // Handles a message about weights; false: it is about something else. BadMessage for an invalid
  // one. Exceptions of ModelWeights::use() propagate; those of staging are sent to the leader.
  bool take(const Message& message);

 private:
  void stage(uint64_t number, const StageRequest& request);
  void begin(std::function<void()> work);

  ControlChannel& leader_;
  ModelWeights* weights_;
  std::thread worker_;
};

// Leader's side, for a rank 0 that computes, too: its control channels to all other ranks. One
// thread at a time may change weights; the engine's thread may send() plans meanwhile.
class Followers {
 public:
  // channels: one for each other rank, which runs follow_plans().
  explicit Followers(std::vector<std::unique_ptr<ControlChannel>> channels)
      : channels_(std::move(channels)) {}

  // Sends a message to all ranks. Error(kLostRank) as in ControlChannel::send(); the same holds for
  // the functions below that send.
  void send(MessageKind kind, uint64_t number, std::span<const std::byte> payload = {});
  void end() noexcept;  // sends kEnd: no more plans

  void stage(const StageRequest& request);  // sends the request
  // Waits until all ranks have staged. Returns the first error; empty: none.
  std::string staged();
  void use();   // sends the message
  void used();  // waits until all ranks use the new weights
  void drop();  // sends the message

 private:
  std::string wait_for(MessageKind kind);
  std::vector<std::unique_ptr<ControlChannel>> channels_;
  uint64_t change_ = 0;  // number of the last change
};

}  // namespace trireme
