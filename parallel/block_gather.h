// Brings the values of parameter blocks together where each rank keeps only its shard (ZeRO stage
// 3), and back to all ranks after an update where each rank updates only its shard (stages 1 and
// 2).
#pragma once

#include "engine/ops/context.h"
#include "parallel/block_buffers.h"
#include "parallel/groups.h"
#include "parallel/parameter_store.h"

namespace trireme {

class BlockGather {
 public:
  // Everything must outlive this object. prefetch: see acquire().
  BlockGather(const Groups& groups, const ParameterStore& store, Ctx& ctx, bool prefetch);
  ~BlockGather();  // waits for gathers under way
  BlockGather(const BlockGather&) = delete;
  BlockGather& operator=(const BlockGather&) = delete;

  // The values of `block` are whole until release(); nested calls count. With prefetch the gather
  // of `next` (-1: none), which must be the next block acquired, runs meanwhile. Every rank of the
  // region's group calls in the same order. Memory comes from the arena of the step.
  void acquire(int block, int next);
  void release(int block);
  bool holds(int block) const { return uses_[static_cast<size_t>(block)].users > 0; }
  Tensor view(int block, const FlatRange& part) const { return buffers_.view(block, part); }

 private:
  struct Use {
    int users = 0;
    bool started = false;
    std::vector<Work> work;
  };
  void start(int block);
  const Groups& groups_;
  const ParameterStore& store_;
  Ctx& ctx_;
  bool prefetch_;
  BlockBuffers buffers_;
  std::vector<Use> uses_;
};

// After an update: the pieces that the other ranks own of the values each rank keeps whole. The
// caller's waiting is added to kCommunication.
void gather_updated_values(const Groups& groups, const ParameterStore& store, Profile* profile);

}  // namespace trireme
