// Blend of several datasets in proportion to weights, in Megatron's order: sample t is the next one
// of the dataset with the largest weight * max(t, 1) - (samples already drawn from it). In a tie
// the first dataset is used.
#pragma once

#include <cstdint>
#include <vector>

namespace trireme {

// weights / sum(weights), summed in numpy's order so that the bits agree.
std::vector<double> normalize_weights(const std::vector<double>& weights);

// Source of each sample of a blend, in order.
struct BlendIndex {
  std::vector<uint16_t> dataset;  // (size) dataset number
  std::vector<int64_t> sample;    // (size) sample number in the dataset
};
// weights: normalized, of 1 to 32766 datasets. size: samples of the blend.
BlendIndex build_blend_index(const std::vector<double>& weights, int64_t size);

struct BlendSizes {
  std::vector<int64_t> build;  // samples to build of each dataset: 0.5 % more than its share
  int64_t total = 0;           // samples of the blend, >= num_samples
};
// weights: normalized.
BlendSizes blend_sizes(const std::vector<double>& weights, int64_t num_samples);

}  // namespace trireme
