// Choosing the next token from logits.
#pragma once

#include "engine/ops/sample.h"

namespace trireme {

// InputError naming the parameter that is out of range.
void check_sampling_params(const SamplingParams& params);

class Sampler {
 public:
  explicit Sampler(const SamplingParams& params);
  // Token number `position` of the sequence (engine/ops/sample.h); an Error where logits are not finite.
  SampledToken sample(std::span<const float> logits, int64_t position);

 private:
  SamplingParams params_;
  SampleScratch scratch_;
};

}  // namespace trireme
