// Memory of an outer algorithm on one rank: the shared weights, their momentum, the update of this
// site, and the compression of its exchange. Each is a piece (parallel/outer/weight_pieces.h) of
// each region, in the dtype of gradients.
#pragma once

#include <array>
#include <memory>

#include "parallel/outer/compression_state.h"
#include "parallel/outer/outer_config.h"

namespace trireme {

class OuterState {
 public:
  struct RegionState {
    std::vector<FlatRange> pieces;  // by rank of the site that holds the region
    FlatRange piece;                // this rank's
    CompressionState exchange;      // of this rank's piece, between the sites
    // (n) elements of the piece each; momentum and scratch may be absent. `local` holds the update
    // of the site in a round, and its own weights in OuterSync::with_shared_weights().
    Tensor shared = {}, momentum = {}, local = {}, scratch = {};
    ShardMap map() const { return ShardMap({piece}); }
  };

  // Determines sizes only. layout: of the rank in its site; config.enabled() must be true.
  // sharded_weights: StoredWeights::sharded. seed: of random choices. InputError if a parameter
  // cannot be compressed in this layout.
  OuterState(const OuterConfig& config, const ParameterStore& store, const Layout& layout,
             bool sharded_weights, uint64_t seed);

  int64_t bytes() const;
  void allocate(Ctx& ctx);  // momentum and residuals of zero
  const OuterConfig& config() const { return config_; }
  // nullptr: the region has no trained parameters.
  RegionState* region(Region region) { return regions_[static_cast<size_t>(region)].get(); }
  const RegionState* region(Region region) const {
    return regions_[static_cast<size_t>(region)].get();
  }

  // Whether the weights of the sites may differ from the shared ones. After loading: whether
  // RegionState::local holds the site's own weights.
  bool apart = false;

 private:
  int arrays() const;
  OuterConfig config_;
  bool sharded_weights_;
  DType dtype_;
  std::unique_ptr<Compressor> compressor_;
  std::array<std::unique_ptr<RegionState>, kRegions> regions_;
  std::array<Buffer, kRegions> buffers_;
};

}  // namespace trireme
