// All-gather of parameter values. ZeRO stage 3: gathers a block whose values are stored as shards,
// for as long as it is used. Stages 1 and 2: gathers all updated values after a step in which each
// rank updated only its shard.
#pragma once

#include "engine/ops/context.h"
#include "parallel/groups.h"
#include "parallel/parameter_store.h"
#include "parallel/store_block_buffers.h"
#include "parallel/tile_code.h"

namespace trireme {

class StoreBlockGather {
 public:
  // Groups, store and ctx must outlive this object. prefetch: see acquire().
  StoreBlockGather(const Groups& groups, const ParameterStore& store, Ctx& ctx, bool prefetch,
                   TileCodes codes);
  ~StoreBlockGather();  // waits for gathers in progress
  StoreBlockGather(const StoreBlockGather&) = delete;
  StoreBlockGather& operator=(const StoreBlockGather&) = delete;

  // Gathers the whole values of `block` and keeps them until release(); calls nest. With prefetch,
  // also starts the gather of `next` (-1: none), which must be the next block acquired. Every rank
  // of the region's group calls in the same order. Memory comes from the step's arena: with
  // codes, a block that is not acquired yet has only these.
  void acquire(int block, int next);
  void release(int block);
  bool holds(int block) const { return uses_[static_cast<size_t>(block)].users > 0; }
  Tensor view(int block, const FlatRange& part) const { return buffers_.view(block, part); }

 private:
  struct Use {
    int users = 0;
    bool started = false;
    std::vector<Work> work;
    std::vector<Activation> codes;  // by tile of the block
  };
  void start(int block);
  void start_values(int block);
  void start_codes(int block);
  void open_values(int block);
  void decode(int block);
  const Groups& groups_;
  const ParameterStore& store_;
  Ctx& ctx_;
  bool prefetch_;
  StoreBlockBuffers buffers_;
  std::vector<Use> uses_;
  TileCodes codes_;
};

// All-gathers the trained values, of which each rank has updated its shard, in place in the whole
// values that every rank stores. Adds the caller's waiting time to TimeCategory::kCommunication.
void gather_updated_values(const Groups& groups, const ParameterStore& store, Profile* profile);

}  // namespace trireme
