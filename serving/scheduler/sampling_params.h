// Choice of a sequence's next token: the checked sampling options of a request, in the order in
// which they act on a row of logits l (V):
//
//   mask                   tokens that a grammar forbids get -infinity
//   min_tokens             so do the stop token ids, until min_tokens tokens are generated
//   bad_words              so does the last token of a word if its other tokens are the latest ones
//   logit_bias             l[id] += bias
//   repetition_penalty r   ids in prompt or completion: l[id] / r if positive, l[id] * r otherwise
//                          (Keskar et al. 2019)
//   frequency_penalty f    l[id] -= f * occurrences of id in the completion (without the prompt)
//   presence_penalty p     l[id] -= p for each id in the completion
//   temperature, top_k, top_p, min_p, typical_p, seed      engine/ops/sampling/sample.h
//
// Log-probabilities are those of the model's own logits, before all of this.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "engine/core/random.h"
#include "engine/ops/sampling/sample.h"

namespace trireme {

// Random stream of a sequence within its request: choice `choice` of prompt `prompt`.
constexpr uint64_t draw_of(size_t prompt, size_t choice) {
  return (uint64_t{prompt} << 32) + choice;
}

// Seed of a sequence in a request with this seed. The first choice of the first prompt uses the
// request's seed; the seeds of the others are hashed, so that choice i of seed s + 1 is not choice
// i + 1 of seed s.
inline uint64_t seed_of_draw(uint64_t seed, uint64_t draw) {
  if (draw == 0) return seed;
  const PhiloxBlock words = philox({seed, stream_id("seed of a draw")}, draw);
  return (uint64_t{words[1]} << 32) | words[0];
}

struct SamplingParams {
  RowSamplingParams sampling;
  double repetition_penalty = 1;
  double frequency_penalty = 0;
  double presence_penalty = 0;
  // Number of most probable tokens reported besides the sampled one; -1: no log-probabilities.
  int32_t top_logprobs = -1;
  int32_t prompt_logprobs = -1;  // the same for prompt tokens
  int64_t min_tokens = 0;
  std::vector<int32_t> stop_token_ids = {};  // stop token ids; part of the completion
  std::vector<std::pair<int32_t, double>> logit_bias = {};
  std::vector<std::vector<int32_t>> bad_words = {};

  bool needs_history() const {
    return repetition_penalty != 1 || frequency_penalty != 0 || presence_penalty != 0 ||
           !bad_words.empty();
  }
};

}  // namespace trireme
