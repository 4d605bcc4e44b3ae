#include "parallel/outer/outer_algorithms.h"

#include <algorithm>

namespace trireme {
namespace {

constexpr OuterAlgorithm kAlgorithms[] = {
    {"average", "the mean of the sites' weights (Local SGD)", 1.0, [](int) { return 0.0; }, false,
     false},
    // 1 - 1/S gives each site's update the weight that it would have alone.
    {"block_momentum", "momentum over the mean update (BMUF)", 1.0,
     [](int sites) { return 1.0 - 1.0 / sites; }, true, false},
    {"diloco", "SGD with Nesterov momentum on the mean update", 0.7, [](int) { return 0.9; }, true,
     false},
    {"streaming_diloco", "the same for groups of layers in turn, sent while training continues",
     0.7, [](int) { return 0.9; }, true, true},
    {"adasum", "the sum of orthogonal updates and the mean of parallel ones, for each tensor", 1.0,
     [](int) { return 0.0; }, false, false, UpdateCombination::kAdasum},
};

}  // namespace

std::span<const OuterAlgorithm> outer_algorithms() { return kAlgorithms; }

const OuterAlgorithm* find_outer_algorithm(const std::string& name) {
  const auto* const row = std::ranges::find(kAlgorithms, name, &OuterAlgorithm::name);
  return row == std::end(kAlgorithms) ? nullptr : row;
}

}  // namespace trireme
