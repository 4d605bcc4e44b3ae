// Engines of a server: one for each replica of its model (data parallelism). Each has its own
// ranks, KV cache and scheduler, so that the failure of a replica ends only its own sequences.
//
// A sequence is assigned to a replica when it is submitted: to the one that probably has the
// longest prefix of its prompt cached, or, if that prefix is short or the loads are out of balance,
// to the one with the fewest sequences (serving/load_balancer/server_choice.h). Replicas that
// cannot run get none; if none can, the first replica reports its failure to the sequence. Prefixes
// are distinguished by adapter and salt, as in the KV caches.
#pragma once

#include "serving/engine/engine.h"
#include "serving/load_balancer/server_choice.h"

namespace trireme {

// Thread-safe, except where noted.
class Replicas {
 public:
  // engines: between one and kMaxServers, all of the same model. Objects that their step listeners
  // refer to must outlive this one.
  explicit Replicas(std::vector<std::unique_ptr<Engine>> engines, const BalanceRule& rule = {});
  ~Replicas();  // stop()

  size_t size() const { return engines_.size(); }
  Engine& operator[](size_t replica) { return *engines_[replica]; }

  // As Engine::add(), on one replica. Ids are unique across replicas. beside: id of an earlier
  // sequence, whose replica this one uses, too, even if it cannot run; 0: the replica is chosen as
  // described above.
  SequenceId add(SequenceRequest request, SequenceListener listener,
                 const std::shared_ptr<WeightsHold>& hold = nullptr, SequenceId beside = 0);
  // As Engine::add_siblings(), all on one replica.
  std::vector<SequenceId> add_siblings(const SequenceRequest& request, size_t n,
                                       const std::function<SequenceListener(size_t)>& listener_of,
                                       const std::shared_ptr<WeightsHold>& hold = nullptr);
  void cancel(SequenceId id);  // as Engine::cancel()
  size_t replica_of(SequenceId id) const { return static_cast<size_t>(id % engines_.size()); }

  void forget_prefixes();  // of all replicas
  // Runs `change` with each replica's index on that replica's engine thread, as
  // Engine::change_weights() does; replicas switch independently. Waits for all, then throws the
  // exception of the first replica that failed, if any. One call at a time.
  void change_weights(Handover how, const std::function<void(size_t)>& change);
  void stop();

  std::vector<EngineCounts> counts() const;  // by replica
  // Failure of the first replica if none can run; empty: at least one can.
  Failure failure() const;

 private:
  struct Placement {
    size_t replica = 0;
    std::shared_ptr<const void> load = {};  // the sequence counts as load while this exists
  };
  Placement find_placement(std::span<const uint64_t> blocks, ServerSet others);
  Placement best_placement(const SequenceRequest& request);
  Placement placement_on(size_t replica);
  void look();
  void register_hold(const std::shared_ptr<WeightsHold>& hold);
  SequenceListener with_replica(const Placement& placement, SequenceListener listener) const;
  SequenceId id_of(size_t replica, SequenceId of_engine) const {
    return of_engine * engines_.size() + replica;
  }

  // Makes weight changes and register_hold() reach all engines in the same order.
  std::mutex order_;
  ServerChoice choice_;
  std::vector<std::unique_ptr<Engine>> engines_;  // destroyed first: listeners use choice_
};

}  // namespace trireme
