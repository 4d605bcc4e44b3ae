#include "transformer/layers/preference.h"

#include <algorithm>
#include <cmath>

namespace trireme {
namespace {

double log_sigmoid(double x) { return std::min(x, 0.0) - std::log1p(std::exp(-std::abs(x))); }
double sigmoid(double x) { return std::exp(log_sigmoid(x)); }

// Loss of z, and its derivative.
double loss_of(const PreferenceConfig& config, double z, double& derivative) {
  if (config.type == PreferenceConfig::Type::kIpo) {
    const double off = z - 1.0 / (2.0 * config.beta);
    derivative = 2.0 * off;
    return off * off;
  }
  const double x = config.beta * z, e = config.label_smoothing;
  derivative = config.beta * (e * sigmoid(x) - (1.0 - e) * sigmoid(-x));
  return -(1.0 - e) * log_sigmoid(x) - e * log_sigmoid(-x);
}

}  // namespace

void add_pair(const PreferenceConfig& config, const PreferencePair& pair, double chosen,
              double rejected, PreferenceSums& sums, double& d_chosen, double& d_rejected) {
  const double over_chosen = chosen - pair.chosen.reference;
  const double over_rejected = rejected - pair.rejected.reference;
  const bool means = config.type == PreferenceConfig::Type::kIpo;
  const double n = means ? static_cast<double>(pair.chosen.learned) : 1.0;
  const double m = means ? static_cast<double>(pair.rejected.learned) : 1.0;
  double derivative = 0;
  sums.loss += loss_of(config, over_chosen / n - over_rejected / m, derivative);
  d_chosen = derivative / n;
  d_rejected = -derivative / m;
  sums.chosen_reward += config.beta * over_chosen / n;
  sums.rejected_reward += config.beta * over_rejected / m;
  sums.correct += over_chosen / n > over_rejected / m ? 1 : 0;
  sums.pairs += 1;
}

void add_pairs(const PreferenceConfig& config, std::span<const PreferencePair> pairs,
               std::span<const double> losses, std::span<double> weights, PreferenceSums& sums) {
  std::ranges::fill(weights, 0.0);
  const auto part = [](const auto& all, const PreferenceResponse& response) {
    return all.subspan(static_cast<size_t>(response.begin),
                       static_cast<size_t>(response.end - response.begin));
  };
  const auto log_likelihood = [&](const PreferenceResponse& response) {
    double sum = 0;
    for (const double loss : part(losses, response)) sum -= loss;
    return sum;
  };
  for (const PreferencePair& pair : pairs) {
    double d_chosen = 0, d_rejected = 0;
    add_pair(config, pair, log_likelihood(pair.chosen), log_likelihood(pair.rejected), sums,
             d_chosen, d_rejected);
    std::ranges::fill(part(weights, pair.chosen), -d_chosen);
    std::ranges::fill(part(weights, pair.rejected), -d_rejected);
  }
}

}  // namespace trireme
