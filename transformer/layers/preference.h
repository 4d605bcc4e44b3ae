// Direct preference optimisation (Rafailov et al. 2023, "DPO"): of two answers y to a prompt, the
// chosen one is to become more probable than the rejected one, measured against a reference model.
//
//   z = [ln p(chosen) - ln p(rejected)] - [ln p_ref(chosen) - ln p_ref(rejected)]
//   sigmoid   -(1 - e) ln s(beta z) - e ln s(-beta z)     e: label smoothing (conservative DPO), s: logistic
//   ipo       (z - 1 / (2 beta))^2     with means over an answer's tokens in the place of sums (Azar et al. 2023)
//
// The loss of a batch is the mean over its pairs. The rewards that are reported are beta (ln p - ln
// p_ref).
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

// An answer: tokens [begin, end) of a micro-batch, of which `learned` have a target, and what the
// reference model gives the sum of their ln p.
struct Answer {
  int64_t begin = 0, end = 0, learned = 0;
  double reference = 0;
};
struct PreferencePair {
  Answer chosen, rejected;
};

// Sums over pairs.
struct PreferenceSums {
  double loss = 0, chosen_reward = 0, rejected_reward = 0;
  double correct = 0;  // pairs whose chosen answer has the larger reward
  double pairs = 0;
};

// Adds a pair whose answers have these sums of ln p; d_chosen and d_rejected: the loss's
// derivatives by them.
void add_pair(const PreferenceConfig& config, const PreferencePair& pair, double chosen,
              double rejected, PreferenceSums& sums, double& d_chosen, double& d_rejected);

// The same for all pairs of a micro-batch. losses (T): -ln p of each token with a target; weights
// (T): the derivative of the loss by them, 0 for tokens of no pair.
void add_pairs(const PreferenceConfig& config, std::span<const PreferencePair> pairs,
               std::span<const double> losses, std::span<double> weights, PreferenceSums& sums);

}  // namespace trireme
