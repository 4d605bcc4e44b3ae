// Compression of gradients in their sum over the ranks that hold the same parameters, at ZeRO
// stages 0 and 1 (docs/design/outer.md): which tensors are compressed, and the memory of it.
#pragma once

#include <array>
#include <memory>

#include "parallel/outer/compression_state.h"
#include "parallel/outer/compressors/compressors.h"
#include "parallel/outer/sum_levels.h"

namespace trireme {

class GradientCompression {
 public:
  // Gradients of one region. Of its parts, in the order of their offsets, each inner rank
  // compresses one piece. With one outer rank there are no parts: the sum is exact.
  struct RegionSum {
    SumLevels levels;
    std::vector<FlatRange> pieces;  // by inner rank; padding inside of a piece belongs to it
    CompressionState state;         // of this rank's piece, between the outer ranks
  };

  // Determines sizes only. The store's gradients must not be sharded; the config must be enabled
  // and have no problems. nodes: as for sum_levels(). seed: of random choices. InputError if a
  // parameter cannot be compressed in this layout (compressed_parts()).
  GradientCompression(const GradientCompressionConfig& config, const ParameterStore& store,
                      const ParallelSizes& sizes, const Layout& layout,
                      const std::vector<int>& nodes, uint64_t seed);

  int64_t bytes() const;
  void allocate(Ctx& ctx);  // residuals of zero
  bool compresses(int64_t step) const { return step >= config_.warmup_steps; }
  double moment_beta() const { return config_.moment_beta; }
  // nullptr: the region has no trained parameters, or one rank holds them.
  RegionSum* region(Region region) { return sums_[static_cast<size_t>(region)].get(); }
  const RegionSum* region(Region region) const { return sums_[static_cast<size_t>(region)].get(); }

 private:
  GradientCompressionConfig config_;
  std::unique_ptr<Compressor> compressor_;
  std::array<std::unique_ptr<RegionSum>, kRegions> sums_;
};

}  // namespace trireme
