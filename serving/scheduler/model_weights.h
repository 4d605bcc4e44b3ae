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
  // Loads the weights at `path` next to those in use. Blocks while it loads; not on the engine's
  // thread. If they are of another model, throws InputError listing every difference and changes
  // nothing.
  virtual Checkpoint stage(const std::string& path) = 0;
  // Stages an adapter for a run-time slot, in place of the adapter that is in it.
  virtual void stage_adapter(int32_t slot, const std::string& path) = 0;
  // Commits to the staged weights; the last call before use(). True: ranks lost from now on, before
  // or during use(), are restarted with them; false: no ranks are restarted.
  virtual bool commit() { return false; }
  // Switches this replica to the staged weights; replicas switch independently. On its engine's
  // thread between two steps (Engine::change_weights).
  virtual void use(size_t replica) = 0;
  // Releases the staged weights, or, after use() on all replicas, the previous ones. Not on the
  // engine's thread.
  virtual void drop() = 0;
  // No request uses the adapter of this slot any longer: restarted ranks need not load it. From any
  // thread, returns at once.
  virtual void forget_adapter(int32_t) {}
};

}  // namespace trireme
