// All-gather of parameter values. ZeRO stage 3: gathers a block whose values are stored as shards,
// for as long as it is used. Stages 1 and 2: gathers all updated values after a step in which each
// rank updated only its shard.
#pragma once

#include "engine/ops/context.h"
#include "parallel/groups.h"
#include "parallel/parameter_store.h"
#include "parallel/store_block_buffers.h"
#include "parallel/store_block_copies.h"
#include "parallel/tile_code.h"

namespace trireme {

class StoreBlockGather {
 public:
  // Groups, store and ctx must outlive this object. Collective over the ranks of each region.
  StoreBlockGather(const Groups& groups, const ParameterStore& store, Ctx& ctx,
                   GatherOptions options);
  ~StoreBlockGather();  // waits for gathers in progress
  StoreBlockGather(const StoreBlockGather&) = delete;
  StoreBlockGather& operator=(const StoreBlockGather&) = delete;

  // Gathers the whole values of `block` and keeps them until release(); calls nest. With prefetch,
  // also starts the gather of `next`, which must be the next block acquired. Every rank of the
  // region's group calls in the same order. Memory comes from the step's arena: with codes, a block
  // that is not acquired yet has only these.
  void acquire(StoreBlockPass block, StoreBlockPass next);
  void release(int block);
  bool holds(int block) const { return uses_[static_cast<size_t>(block)].users > 0; }
  // Memory of the second copy.
  void allocate(Ctx& ctx);
  int64_t copy_bytes() const { return copies_ == nullptr ? 0 : copies_->bytes(); }
  Tensor view(int block, const FlatRange& part) const { return buffers_.view(block, part); }

 private:
  struct Use {
    int users = 0;
    bool started = false, finished = false;
    bool from_copy = false;
    std::vector<Work> work;
    std::vector<Activation> codes;  // by tile of the block
  };
  void start(StoreBlockPass use);
  void start_exact(int block);
  void start_codes(int block);
  void start_from_copy(int block);
  void finish(int block);
  void open_values(int block);
  Tensor values_of(const Tile& tile) const { return buffers_.view(tile.block, tile.range); }
  // Calls use(number of the tile, tile) for the tiles of a block; nothing in a planning run.
  template <class F>
  void for_each_tile(int block, const F& use) const;
  const Groups& groups_;
  const ParameterStore& store_;
  Ctx& ctx_;
  GatherOptions options_;
  std::unique_ptr<StoreBlockCopies> copies_;  // null: none
  StoreBlockBuffers buffers_;
  std::vector<Use> uses_;
};

// All-gathers the trained values, of which each rank has updated its shard, in place in the whole
// values that every rank stores. Adds the caller's waiting time to TimeCategory::kCommunication.
void gather_updated_values(const Groups& groups, const ParameterStore& store, Profile* profile);

}  // namespace trireme
