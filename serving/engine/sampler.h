// Choosing the next token from logits.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/core/random.h"

namespace trireme {

struct SamplingParams {
  double temperature = 1.0;  // 0: the largest logit (greedy)
  int64_t top_k = 0;         // 0: all
  double top_p = 1.0;        // smallest set of tokens whose probabilities reach top_p
  double min_p = 0.0;        // tokens below min_p times the largest probability are dropped
  uint64_t seed = 0;
};

// InputError naming the parameter that is out of range.
void check_sampling_params(const SamplingParams& params);

struct SampledToken {
  int32_t id = 0;
  double logprob = 0;  // of the unmodified distribution (temperature 1, nothing dropped)
};

class Sampler {
 public:
  explicit Sampler(const SamplingParams& params);
  // Token number `position` of the sequence: its random number depends on (seed, position) only.
  // Filters apply in the order top_k, top_p, min_p after the temperature. Ties go to the lower id.
  SampledToken sample(std::span<const float> logits, int64_t position);

 private:
  SamplingParams params_;
  std::vector<int32_t> order_;
  std::vector<double> probability_;
};

}  // namespace trireme
