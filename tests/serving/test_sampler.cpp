#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <vector>

#include "engine/core/error.h"
#include "serving/engine/sampler.h"

namespace trireme {
namespace {

const std::vector<float> kLogits = {1.0f, 3.0f, 2.0f, 3.0f, -1.0f};

std::map<int32_t, int> draw(const SamplingParams& params, int count) {
  Sampler sampler(params);
  std::map<int32_t, int> seen;
  for (int i = 0; i < count; ++i) ++seen[sampler.sample(kLogits, i).id];
  return seen;
}

TEST(Sampler, ZeroTemperatureTakesTheFirstLargest) {
  SamplingParams p;
  p.temperature = 0;
  const SampledToken token = Sampler(p).sample(kLogits, 7);
  EXPECT_EQ(token.id, 1);
  double sum = 0;
  for (float l : kLogits) sum += std::exp(static_cast<double>(l));
  EXPECT_NEAR(token.logprob, 3.0 - std::log(sum), 1e-12);
}

TEST(Sampler, FrequenciesFollowTheDistribution) {
  constexpr int kDraws = 20000;
  for (double temperature : {0.7, 1.0, 2.0}) {
    SamplingParams p;
    p.temperature = temperature;
    const auto seen = draw(p, kDraws);
    double sum = 0;
    for (float l : kLogits) sum += std::exp(l / temperature);
    for (size_t i = 0; i < kLogits.size(); ++i) {
      const double want = std::exp(kLogits[i] / temperature) / sum;
      const auto found = seen.find(static_cast<int32_t>(i));
      const double got = found == seen.end() ? 0 : static_cast<double>(found->second) / kDraws;
      // Five standard deviations of a binomial share.
      EXPECT_NEAR(got, want, 5 * std::sqrt(want * (1 - want) / kDraws)) << "token " << i;
    }
  }
}

TEST(Sampler, TopKTopPAndMinPKeepWhatTheySay) {
  SamplingParams p;
  p.top_k = 2;
  EXPECT_EQ(draw(p, 500).size(), 2u);
  p = {};
  p.top_p = 0.3;  // tokens 1 and 3 hold 0.39 each
  EXPECT_EQ(draw(p, 500).size(), 1u);
  p.top_p = 0.6;
  EXPECT_EQ(draw(p, 500).size(), 2u);
  p = {};
  p.min_p = 0.2;  // exp(-1) = 0.37 stays, exp(-2) = 0.14 goes
  const auto seen = draw(p, 2000);
  EXPECT_EQ(seen.size(), 3u);
  EXPECT_EQ(seen.count(0), 0u);
}

TEST(Sampler, SameSeedSameTokensAndPositionsDiffer) {
  SamplingParams p;
  p.seed = 11;
  Sampler a(p), b(p);
  int changes = 0;
  for (int i = 0; i < 100; ++i) {
    const int32_t id = a.sample(kLogits, i).id;
    EXPECT_EQ(id, b.sample(kLogits, i).id);
    if (id != a.sample(kLogits, i + 1).id) ++changes;
  }
  EXPECT_GT(changes, 10);
}

TEST(Sampler, RefusesParametersOutOfRange) {
  const auto refused = [](auto set) {
    SamplingParams p;
    set(p);
    EXPECT_THROW(check_sampling_params(p), InputError);
  };
  refused([](auto& p) { p.temperature = -1; });
  refused([](auto& p) { p.temperature = std::nan(""); });
  refused([](auto& p) { p.top_k = -1; });
  refused([](auto& p) { p.top_p = 0; });
  refused([](auto& p) { p.top_p = 1.5; });
  refused([](auto& p) { p.min_p = -0.1; });
}

}  // namespace
}  // namespace trireme
