// Blend of several datasets in proportion to weights, in Megatron's order: at step t the dataset
// with the largest weight * max(t, 1) - (samples drawn from it so far) supplies the next sample
// (ties: the first dataset).
#pragma once

#include <cstdint>
#include <vector>

namespace trireme {

// weights / sum(weights), summed in numpy's order so that the bits agree.
std::vector<double> normalize_weights(const std::vector<double>& weights);

struct BlendIndex {
  std::vector<uint16_t> dataset;  // (size) dataset number
  std::vector<int64_t> sample;    // (size) sample number in the dataset
};
BlendIndex build_blend_index(const std::vector<double>& weights, int64_t size);

struct BlendSizes {
  std::vector<int64_t> build;  // samples each dataset is built with: 0.5 % above its share
  int64_t total = 0;           // samples of the blend, >= num_samples
};
// weights are normalised.
BlendSizes blend_sizes(const std::vector<double>& weights, int64_t num_samples);

}  // namespace trireme
