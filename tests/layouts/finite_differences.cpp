#include "tests/layouts/finite_differences.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace trireme::test {
namespace {

int compare(LayoutRank& rank, const SlopeCheck& check) {
  rank.train(0, false);
  ParameterStore& store = rank.state.store;
  const Tensor flat = store.flat_values();
  auto* const values = flat.as<double>();
  std::vector<double> before(values, values + flat.numel());
  // Loss of the second step at these values, which the step's update then changes.
  const auto loss_at = [&](int64_t at, double step) {
    std::copy(before.begin(), before.end(), values);
    if (at >= 0) values[at] += step;
    return rank.train(1, false).loss;
  };
  loss_at(-1, 0);
  const auto* const g = store.flat_gradients().as<double>();
  std::vector<double> gradient(g, g + store.flat_gradients().numel());
  gradient.resize(before.size());  // frozen parameters have none
  if (check.complete)
    check.complete(store, Tensor(before.data(), DType::kF64, flat.shape()),
                   Tensor(gradient.data(), DType::kF64, flat.shape()));
  int checked = 0;
  for (ParamHandle h = 0; h < std::ssize(store.specs()); ++h) {
    const ParameterSpec& spec = store.specs()[static_cast<size_t>(h)];
    if (!store.trained(h) || (check.chosen && !check.chosen(spec))) continue;
    const int64_t at = store.range(h).begin + store.range(h).size() / 2;
    constexpr double kStep = 1e-5;
    const double slope = (loss_at(at, kStep) - loss_at(at, -kStep)) / (2 * kStep);
    EXPECT_NEAR(gradient[static_cast<size_t>(at)], slope, 1e-8 + 1e-6 * std::abs(slope))
        << spec.name;
    ++checked;
  }
  return checked;
}

}  // namespace

int expect_slopes(const RunConfig& config, const SlopeCheck& check) {
  int checked = 0;
  on_ranks(config, {}, [&](LayoutRank& rank) { checked = compare(rank, check); });
  return checked;
}

}  // namespace trireme::test
