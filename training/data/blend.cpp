#include "training/data/blend.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "engine/core/error.h"

namespace trireme {
namespace {

constexpr double kSurplus = 0.005;  // as in Megatron

// numpy.sum of float64, bit for bit: eight running sums for up to 128 elements; more elements are
// split in half, at a multiple of eight.
double numpy_sum(const double* values, size_t n) {
  if (n < 8) {
    double sum = 0;
    for (size_t i = 0; i < n; ++i) sum += values[i];
    return sum;
  }
  if (n > 128) {
    const size_t half = n / 2 - n / 2 % 8;
    return numpy_sum(values, half) + numpy_sum(values + half, n - half);
  }
  std::array<double, 8> r;
  std::copy_n(values, 8, r.begin());
  size_t i = 8;
  for (; i + 8 <= n; i += 8) {
    for (size_t k = 0; k < 8; ++k) r[k] += values[i + k];
  }
  double sum = ((r[0] + r[1]) + (r[2] + r[3])) + ((r[4] + r[5]) + (r[6] + r[7]));
  for (; i < n; ++i) sum += values[i];
  return sum;
}

}  // namespace

std::vector<double> normalize_weights(const std::vector<double>& weights) {
  std::vector<double> normalized = weights;
  const double sum = numpy_sum(weights.data(), weights.size());
  for (double& weight : normalized) weight /= sum;
  return normalized;
}

BlendIndex build_blend_index(const std::vector<double>& weights, int64_t size) {
  TRIREME_CHECK(!weights.empty() && weights.size() < std::numeric_limits<int16_t>::max(),
                weights.size(), " datasets in a blend, expected 1 to 32766");
  BlendIndex index;
  index.dataset.resize(static_cast<size_t>(size));
  index.sample.resize(static_cast<size_t>(size));
  std::vector<int64_t> drawn(weights.size(), 0);
  for (size_t t = 0; t < index.dataset.size(); ++t) {
    const double step = std::max(static_cast<double>(t), 1.0);
    size_t best = 0;
    double largest = -std::numeric_limits<double>::infinity();
    for (size_t d = 0; d < weights.size(); ++d) {
      const double owed = weights[d] * step - static_cast<double>(drawn[d]);
      if (owed > largest) {
        largest = owed;
        best = d;
      }
    }
    index.dataset[t] = static_cast<uint16_t>(best);
    index.sample[t] = drawn[best]++;
  }
  return index;
}

BlendSizes blend_sizes(const std::vector<double>& weights, int64_t num_samples) {
  BlendSizes sizes;
  for (const double weight : weights) {
    const double share = std::ceil(static_cast<double>(num_samples) * weight);
    sizes.total += static_cast<int64_t>(share);
    sizes.build.push_back(static_cast<int64_t>(std::ceil(share * (1 + kSurplus))));
  }
  return sizes;
}

}  // namespace trireme
