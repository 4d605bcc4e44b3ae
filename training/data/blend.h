// Several datasets drawn from in proportion to weights, in Megatron's order: at step t the dataset
// with the largest weight * max(t, 1) - (samples drawn from it so far) gives its next sample; the
// first of equals wins.
#pragma once

#include <cstdint>
#include <vector>

namespace trireme {

// weights / sum(weights), summed in numpy's order so that no last bit differs.
std::vector<double> normalize_weights(const std::vector<double>& weights);

struct BlendIndex {
  std::vector<uint16_t> dataset;  // (size) which dataset
  std::vector<int64_t> sample;    // (size) which of its samples
};
BlendIndex build_blend_index(const std::vector<double>& weights, int64_t size);

struct BlendSizes {
  std::vector<int64_t> build;  // samples each dataset is built with: 0.5 % above its share
  int64_t total = 0;           // samples of the blend, >= num_samples
};
// weights are normalised.
BlendSizes blend_sizes(const std::vector<double>& weights, int64_t num_samples);

}  // namespace trireme
