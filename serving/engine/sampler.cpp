#include "serving/engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "engine/core/error.h"

namespace trireme {

void check_sampling_params(const SamplingParams& p) {
  if (!(p.temperature >= 0 && p.temperature <= 100))
    fail_input("temperature ", p.temperature, " is not in [0, 100]");
  if (p.top_k < 0) fail_input("top_k ", p.top_k, " is negative; 0 keeps all tokens");
  if (!(p.top_p > 0 && p.top_p <= 1)) fail_input("top_p ", p.top_p, " is not in (0, 1]");
  if (!(p.min_p >= 0 && p.min_p <= 1)) fail_input("min_p ", p.min_p, " is not in [0, 1]");
}

Sampler::Sampler(const SamplingParams& params) : params_(params) { check_sampling_params(params); }

namespace {

double log_sum_exp(std::span<const float> logits, double largest) {
  double sum = 0;
  for (float l : logits) sum += std::exp(static_cast<double>(l) - largest);
  return largest + std::log(sum);
}

}  // namespace

SampledToken Sampler::sample(std::span<const float> logits, int64_t position) {
  TRIREME_CHECK(!logits.empty(), "no logits");
  const auto best = std::ranges::max_element(logits);
  const double largest = *best;
  TRIREME_CHECK(std::isfinite(largest), "the logits are not finite");
  const double normaliser = log_sum_exp(logits, largest);
  const auto result = [&](int32_t id) {
    return SampledToken{id, static_cast<double>(logits[static_cast<size_t>(id)]) - normaliser};
  };
  if (params_.temperature == 0) return result(static_cast<int32_t>(best - logits.begin()));

  order_.resize(logits.size());
  std::iota(order_.begin(), order_.end(), 0);
  const auto above = [&](int32_t a, int32_t b) {
    const float la = logits[static_cast<size_t>(a)], lb = logits[static_cast<size_t>(b)];
    return la != lb ? la > lb : a < b;
  };
  // Only top_p and min_p need the order of more than the top_k tokens.
  size_t kept = order_.size();
  if (params_.top_k > 0) kept = std::min(kept, static_cast<size_t>(params_.top_k));
  std::ranges::partial_sort(order_, order_.begin() + static_cast<std::ptrdiff_t>(kept), above);
  probability_.resize(kept);
  double total = 0;
  for (size_t i = 0; i < kept; ++i) {
    const double logit = logits[static_cast<size_t>(order_[i])];
    probability_[i] = std::exp((logit - largest) / params_.temperature);
    total += probability_[i];
  }
  const double reach = params_.top_p * total;
  double sum = 0;
  size_t count = 0;
  while (count < kept) {
    if (count > 0 && (sum >= reach || probability_[count] < params_.min_p * probability_[0])) break;
    sum += probability_[count++];
  }
  const RandomKey key{params_.seed, stream_id("sample")};
  const PhiloxBlock block = philox(key, static_cast<uint64_t>(position));
  const uint64_t bits = (static_cast<uint64_t>(block[0]) << 32 | block[1]) >> 11;
  double target = static_cast<double>(bits) * 0x1p-53 * sum;
  for (size_t i = 0; i + 1 < count; ++i) {
    if (target < probability_[i]) return result(order_[i]);
    target -= probability_[i];
  }
  return result(order_[count - 1]);
}

}  // namespace trireme
