// The weights that a server's model computes with, as whoever replaces them sees them while it
// serves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace trireme {

class ModelWeights {
 public:
  virtual ~ModelWeights() = default;

  struct Place {
    std::string directory;  // the checkpoint itself, where a run was named
    int64_t step = 0;       // of its training
  };
  // What is served.
  virtual Place served() const = 0;
  // Loads what lies at a path beside what is served: InputError that names every difference where
  // it is for another model, and nothing has changed then. Takes its time. Not on the engine's
  // thread.
  virtual Place stage(const std::string& path) = 0;
  // The same for an adapter, in a slot of those that come and go, in the place of what is there.
  virtual void stage_adapter(int32_t slot, const std::string& path) = 0;
  // What is staged is to be used: the last thing before use(). True: ranks that are lost from now
  // on, before use() or in it, are started again with it; false: nothing is.
  virtual bool commit() { return false; }
  // What is staged is computed with from now on, by one of the replicas: by all others too, each at
  // a time of its own. On its engine's thread between two steps (Engine::change_weights).
  virtual void use(size_t replica) = 0;
  // Gives up what is staged, or after use() on all what was served before. Not on the engine's
  // thread.
  virtual void drop() = 0;
  // No request names that slot any more: whoever starts again need not load what is there. On any
  // thread, at once.
  virtual void forget_adapter(int32_t) {}
};

}  // namespace trireme
