// Other weights for ranks that serve (serving/scheduler/model_weights.h), over their side channels:
//   leader -> rank: stage, with a StageRequest; rank -> leader: staged, with nothing or why not
//   leader -> rank: use, between two plans, so that all change at the same step; rank -> leader: used
//   leader -> rank: drop
// A rank stages and drops on a thread of its own, and computes plans meanwhile. One change at a
// time; its number is that of all of its messages.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "serving/distributed/side_channel.h"
#include "serving/scheduler/model_weights.h"

namespace trireme {

// What a rank that another process has started is to load, the first thing that it is told.
struct RankTask {
  std::string model;                  // a checkpoint, or files of others
  std::string tokenizer;              // its path, or "byte"
  std::vector<std::string> adapters;  // of the slots; "": none. Empty: as the command line says
  // Of its cache: as many as before, where it starts again; 0: what there is memory for.
  int64_t blocks = 0;
};
void send_task(SideChannel& rank, const RankTask& task);
// Error(kLostRank) where nothing is told for so long; BadMessage for something else.
RankTask receive_task(SideChannel& leader, std::chrono::milliseconds limit);

struct StageRequest {
  int32_t slot = -1;  // of an adapter; -1: the weights
  std::string path;
};
std::vector<std::byte> encode_stage(const StageRequest& request);

// A rank's side.
class WeightsFollower {
 public:
  // weights: nullptr: it has none to change. Both outlive this object.
  WeightsFollower(SideChannel& leader, ModelWeights* weights)
      : leader_(leader), weights_(weights) {}
  ~WeightsFollower();  // waits for what is being staged
  WeightsFollower(const WeightsFollower&) = delete;
  WeightsFollower& operator=(const WeightsFollower&) = delete;

  // Does what the message asks for; false: it is about something else.
  bool take(const Message& message);

 private:
  void stage(uint64_t number, const StageRequest& request);
  void begin(std::function<void()> work);

  SideChannel& leader_;
  ModelWeights* weights_;
  std::thread worker_;
};

// The side of rank 0 that computes too: all other ranks. One thread at a time.
class Followers {
 public:
  // Those of all other ranks, which call follow_plans().
  explicit Followers(std::vector<std::unique_ptr<SideChannel>> channels)
      : channels_(std::move(channels)) {}

  // To all. Error(kLostRank) when one has gone.
  void send(MessageKind kind, uint64_t number, std::span<const std::byte> payload = {});
  void end() noexcept;  // no plan comes any more

  void stage(const StageRequest& request);
  // Waits until all have: why the first that has not could not; empty: all have.
  std::string staged();
  void use();
  void used();  // waits until all do
  void drop();

 private:
  std::string wait_for(MessageKind kind);
  std::vector<std::unique_ptr<SideChannel>> channels_;
  uint64_t change_ = 0;  // the number of the last
};

}  // namespace trireme
