#include "serving/engine/sampler.h"

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

SampledToken Sampler::sample(std::span<const float> logits, int64_t position) {
  TRIREME_CHECK(!logits.empty(), "no logits");
  const SampledToken token = sample_row(params_, logits, position, scratch_);
  TRIREME_CHECK(token.id >= 0, "the logits are not finite");
  return token;
}

}  // namespace trireme
