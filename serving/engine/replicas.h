// The engines of a server whose model is there several times (data parallelism): each with ranks,
// cache and scheduler of its own, so that one that cannot compute for a while ends its own
// sequences and no others. One engine alone is the plain case.
//
// A sequence is computed where it is handed in: by the replica that probably has the longest
// beginning of its prompt in its cache, else by the one with the fewest sequences
// (serving/balance/server_choice.h), of those that can compute. Beginnings are kept apart as the
// caches keep them apart.
#pragma once

#include "serving/balance/server_choice.h"
#include "serving/engine/engine.h"

namespace trireme {

// Any thread may call, but for what says otherwise.
class Replicas {
 public:
  // At least one engine, at most kMostServers, all of the same model. What their step listeners
  // refer to outlives this object.
  explicit Replicas(std::vector<std::unique_ptr<Engine>> engines, const BalanceRule& rule = {});
  ~Replicas();  // stop()

  size_t size() const { return engines_.size(); }
  Engine& operator[](size_t replica) { return *engines_[replica]; }

  // As of Engine; SequenceEvent::replica says which one tells it. An id is of one sequence of all
  // replicas. beside: a sequence that was handed in before: this one is computed where that one is;
  // 0: wherever it is best.
  SequenceId add(SequenceRequest request, SequenceListener listener,
                 const std::shared_ptr<WeightsHold>& hold = nullptr, SequenceId beside = 0);
  // All on one replica.
  std::vector<SequenceId> add_siblings(const SequenceRequest& request, size_t n,
                                       const std::function<SequenceListener(size_t)>& listener_of,
                                       const std::shared_ptr<WeightsHold>& hold = nullptr);
  void cancel(SequenceId id);
  size_t replica_of(SequenceId id) const { return static_cast<size_t>(id % engines_.size()); }

  void forget_prefixes();  // of all
  // Runs `change` with the number of each replica on its engine's thread, as
  // Engine::change_weights() does, and waits for all; each comes to it at a time of its own. Then
  // the first exception of any is thrown. One call at a time.
  void change_weights(Handover how, const std::function<void(size_t)>& change);
  void stop();

  std::vector<EngineCounts> counts() const;  // of each
  // Why none can compute; empty: one can.
  Failure failure() const;

 private:
  struct Place {
    size_t replica = 0;
    std::shared_ptr<const void> load = {};  // counts while a listener has it
  };
  Place find_place(std::span<const uint64_t> blocks, ServerSet others);
  Place best_place(const SequenceRequest& request);
  Place place_on(size_t replica);
  void look();
  void begin(const std::shared_ptr<WeightsHold>& hold);
  SequenceListener told_by(const Place& place, SequenceListener listener) const;
  SequenceId id_of(size_t replica, SequenceId of_engine) const {
    return of_engine * engines_.size() + replica;
  }

  std::mutex order_;  // a change of weights comes to all before a hold begins on any, or behind it
  ServerChoice choice_;
  std::vector<std::unique_ptr<Engine>> engines_;  // their listeners count in choice_
};

}  // namespace trireme
