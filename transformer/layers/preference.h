// Direct preference optimization (Rafailov et al. 2023, "DPO"): training makes the chosen response
// to a prompt more probable than the rejected one, relative to a reference model.
//
//   z = [ln p(chosen) - ln p(rejected)] - [ln p_ref(chosen) - ln p_ref(rejected)]
//   sigmoid   -(1 - e) ln s(beta z) - e ln s(-beta z)
//             e: label smoothing (conservative DPO), s: logistic function
//   ipo       (z - 1 / (2 beta))^2
//             with means over a response's tokens instead of sums (Azar et al. 2023)
//
// The loss of a batch is the mean over its pairs. The reported rewards are beta (ln p - ln p_ref),
// with ipo also of means over a response's tokens.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace trireme {

struct PreferenceConfig {
  enum class Type : uint8_t { kSigmoid, kIpo };
  Type type = Type::kSigmoid;
  double beta = 0.1;
  double label_smoothing = 0;
};

// Response: tokens [begin, end) of a micro-batch, of which `learned` have a target. reference: sum
// of ln p of the reference model.
struct PreferenceResponse {
  int64_t begin = 0, end = 0, learned = 0;
  double reference = 0;
};
struct PreferencePair {
  PreferenceResponse chosen, rejected;
};

// Sums over pairs.
struct PreferenceSums {
  double loss = 0, chosen_reward = 0, rejected_reward = 0;
  double correct = 0;  // pairs whose chosen response has the larger reward
  double pairs = 0;
};

// Adds a pair's loss and rewards to `sums`. chosen, rejected: sums of ln p over their tokens.
// d_chosen, d_rejected: gradients of the pair's loss with respect to these sums.
void add_pair(const PreferenceConfig& config, const PreferencePair& pair, double chosen,
              double rejected, PreferenceSums& sums, double& d_chosen, double& d_rejected);

// Adds all pairs of a micro-batch to `sums`. losses (T): -ln p of each token with a target, 0 for
// others. weights (T): overwritten by the gradient of the summed loss with respect to `losses`, 0
// outside of the responses.
void add_pairs(const PreferenceConfig& config, std::span<const PreferencePair> pairs,
               std::span<const double> losses, std::span<double> weights, PreferenceSums& sums);

}  // namespace trireme
