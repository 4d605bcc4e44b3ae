// Work of the main stream that was recorded once and runs again at the cost of one launch (CUDA
// graphs).
#pragma once

#include <functional>
#include <utility>

#include "engine/device/context.h"

namespace trireme::cuda {

class Graph {
 public:
  Graph() = default;
  explicit Graph(void* raw) : raw_(raw) {}
  Graph(Graph&& other) noexcept : raw_(std::exchange(other.raw_, nullptr)) {}
  Graph& operator=(Graph&& other) noexcept {
    std::swap(raw_, other.raw_);
    return *this;
  }
  ~Graph();
  bool present() const { return raw_ != nullptr; }
  void* raw() const { return raw_; }

 private:
  void* raw_ = nullptr;
};

// Calls `work` and records what it queues on the main stream, and on other streams that wait for it
// and that it waits for; nothing is executed. The arguments of kernels and copies are recorded by
// value: the memory they point to must stay allocated, its content may change between runs. `work`
// must not wait for the device, allocate or free device memory, or upload: the copy would be
// recorded from pinned memory that holds other data at replay (refused). `work` must have run
// before, so that libraries have selected their algorithms. Once Context::library_moves has
// changed, the graph must not be replayed. Not for a context that is `synchronous`. An exception of
// `work` ends the recording and propagates.
TRIREME_CUDA_DECL Graph capture(Context& gpu, const std::function<void()>& work);
// Queues the recorded work on the main stream.
TRIREME_CUDA_DECL void replay(Context& gpu, const Graph& graph);
TRIREME_CUDA_DECL void destroy_graph(void* raw);

}  // namespace trireme::cuda
