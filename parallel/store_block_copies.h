// Second copy of gathered values, divided over neighbouring ranks, for example those of a node (hpZ
// of Wang et al. 2023, "ZeRO++: extremely efficient collective communication for giant model
// training").
//
// The data-parallel ranks of a region (Groups::of) are cut into groups of `ranks` neighbours. After
// a gather for forward each rank keeps its piece of the block, and backward gathers these inside
// the group: the same bits. Only blocks that a planning run gathers for both have a copy.
#pragma once

#include <memory>
#include <vector>

#include "engine/core/memory.h"
#include "parallel/groups.h"
#include "parallel/store_tile.h"

namespace trireme {

// Largest number of ranks, a divisor of the data-parallel ranks, with which each group of
// neighbours is on one node. nodes: by rank of the world. experts: the model has some, which are
// not divided (ep = etp = 1).
int max_copy_ranks(const ParallelSizes& sizes, const std::vector<int>& nodes, bool experts);

class StoreBlockCopies {
 public:
  // tiles: of a store with `blocks` blocks, whose values are `dtype`. `ranks` must divide the size
  // of each tile's group. Collective.
  StoreBlockCopies(const Groups& groups, const std::vector<Tile>& tiles, int blocks, DType dtype,
                   int ranks);

  // In a planning run, before allocate(): the block is gathered for this pass.
  void expect(int block, StorePass pass);
  bool has(int block) const { return expected_[static_cast<size_t>(block)].both(); }
  int64_t bytes() const;
  void allocate(Ctx& ctx);

  // Keeps this rank's piece of `values` (n), the range of tile number `tile`.
  void keep(Ctx& ctx, size_t tile, const Tensor& values) const;
  // Starts to gather `values` of the tile from the pieces of the group.
  Work gather(Ctx& ctx, size_t tile, const Tensor& values) const;

 private:
  struct Passes {
    bool forward = false, backward = false;
    bool both() const { return forward && backward; }
  };
  Communicator& group_of(const Tile& tile) const;
  FlatRange piece_of_tile(const Tile& tile) const;  // of its range
  Tensor kept(size_t tile) const;
  std::vector<Tile> tiles_;
  DType dtype_;
  std::unique_ptr<Communicator> dense_, expert_;
  std::vector<Passes> expected_;  // by block
  std::vector<Buffer> pieces_;    // by tile
};

}  // namespace trireme
