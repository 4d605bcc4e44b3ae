// Interface for replacing a server's model weights while it serves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace trireme {

class ModelWeights {
 public:
  virtual ~ModelWeights() = default;

  struct Checkpoint {
    std::string directory;  // of the checkpoint, even if a run's directory was given
    int64_t step = 0;       // training step of the checkpoint
  };
  // Weights in use.
  virtual Checkpoint served() const = 0;
  // Stages weights: loads those at `path` beside those in use. Blocks until they are loaded; not on
  // the engine's thread. InputError if they cannot be loaded; if they belong to another model, it
  // lists every difference. After an error nothing is staged.
  virtual Checkpoint stage(const std::string& path) = 0;
  // The same for an adapter (a PEFT directory) that will replace the one in this run-time slot.
  virtual void stage_adapter(int32_t slot, const std::string& path) = 0;
  // Commits to the staged weights: the last call before use(). True: ranks that are lost from now
  // on, also before or during use(), restart with the staged weights. False: this model restarts no
  // ranks.
  virtual bool commit() { return false; }
  // Switches this replica to the staged weights; replicas switch independently. On its engine's
  // thread between two steps (Engine::change_weights).
  virtual void use(size_t replica) = 0;
  // Releases the staged weights, or, after use() on all replicas, the previous ones. Not on the
  // engine's thread.
  virtual void drop() = 0;
  // Reports that no request uses the adapter of this slot any longer, so that restarted ranks need
  // not load it. Any thread; returns at once.
  virtual void forget_adapter(int32_t) {}
};

}  // namespace trireme
