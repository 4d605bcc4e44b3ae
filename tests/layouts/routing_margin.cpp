#include "tests/layouts/routing_margin.h"

#include <algorithm>
#include <cstring>

#include "tests/support/compare.h"

namespace trireme::test {
namespace {

// Distance of the k-th largest value to the next one; infinite where there is none.
double gap(std::vector<double> values, int64_t k) {
  if (k >= std::ssize(values)) return std::numeric_limits<double>::infinity();
  std::ranges::sort(values, std::greater<>());
  return values[static_cast<size_t>(k - 1)] - values[static_cast<size_t>(k)];
}

}  // namespace

void RoutingMargin::watch(Ctx& ctx) {
  ctx.observer = [this](const char* name, const ConstTensor& value) {
    if (std::strcmp(name, "router.bias") == 0) bias_ = to_doubles(value);
    if (std::strcmp(name, "router.scores") != 0) return;
    const std::vector<double> scores = to_doubles(value);
    for (size_t t = 0; t < scores.size(); t += static_cast<size_t>(moe_.experts))
      add_token(scores.data() + t);
  };
}

void RoutingMargin::add_token(const double* scores) {
  std::vector<double> choice(scores, scores + moe_.experts);
  for (size_t e = 0; e < bias_.size(); ++e) choice[e] += bias_[e];
  const int64_t width = moe_.experts / moe_.groups;
  std::vector<double> groups;
  for (int64_t g = 0; g < moe_.groups; ++g) {
    std::vector<double> members(choice.begin() + g * width, choice.begin() + (g + 1) * width);
    std::ranges::sort(members, std::greater<>());
    groups.push_back(members[0] + (moe_.sigmoid_scores && width > 1 ? members[1] : 0.0));
  }
  least_ = std::min(least_, gap(groups, moe_.kept_groups));
  std::vector<double> sorted = groups, eligible;
  std::ranges::sort(sorted, std::greater<>());
  for (int64_t e = 0; e < moe_.experts; ++e)
    if (groups[static_cast<size_t>(e / width)] >= sorted[static_cast<size_t>(moe_.kept_groups - 1)])
      eligible.push_back(choice[static_cast<size_t>(e)]);
  least_ = std::min(least_, gap(eligible, moe_.experts_per_token));
}

double required_routing_margin(DType dtype) {
  switch (dtype) {
    case DType::kF64: return 1e-6;
    case DType::kF32: return 2e-5;
    default: return std::numeric_limits<double>::infinity();
  }
}

}  // namespace trireme::test
