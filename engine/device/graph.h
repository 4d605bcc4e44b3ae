// CUDA graph: work of the main stream that was recorded once and runs again at the cost of one
// launch.
#pragma once

#include <functional>
#include <utility>

#include "engine/device/context.h"

namespace trireme::cuda {

// Owner of a cudaGraphExec_t.
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
// must not wait for the device, allocate or free device memory, or call upload() (CheckFailed),
// whose staging memory contains other data at replay. `work` must have run before, so that
// libraries have selected their algorithms. Once Context::library_moves has changed, the graph must
// not be replayed. Not for a `synchronous` context or while calls are timed (launch_times.h). An
// exception of `work` ends the recording and propagates.
TRIREME_CUDA_DECL Graph capture(Context& gpu, const std::function<void()>& work);
// Queues the recorded work on the main stream.
TRIREME_CUDA_DECL void replay(Context& gpu, const Graph& graph);
TRIREME_CUDA_DECL void destroy_graph(void* raw);

}  // namespace trireme::cuda
