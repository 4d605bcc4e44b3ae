// Sampling parameters of a sequence: the validated options of its request. They act on a row of
// logits l (V) in this order:
//
//   mask                   l[id] = -infinity for tokens that the grammar forbids
//   min_tokens             l[id] = -infinity for stop token ids, until min_tokens are generated
//   bad_words              l[id] = -infinity for the last token of a word, if the sequence ends
//                          with the word's other tokens
//   logit_bias             l[id] += bias
//   repetition_penalty r   ids in prompt or completion: l[id] / r if positive, l[id] * r otherwise
//                          (Keskar et al. 2019)
//   frequency_penalty f    l[id] -= f * occurrences of id in the completion (without the prompt)
//   presence_penalty p     l[id] -= p for each id in the completion
//   temperature, top_k, top_p, min_p, typical_p, seed      engine/ops/sampling/sample.h
//
// Reported log-probabilities are those of the unmodified logits.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "engine/core/random.h"
#include "engine/ops/sampling/sample.h"

namespace trireme {

// Random stream of completion `choice` of prompt `prompt` in a request.
constexpr uint64_t draw_of(size_t prompt, size_t choice) {
  return (uint64_t{prompt} << 32) + choice;
}

// Seed of the random stream `draw` in a request with this seed. Stream 0 has the request's own
// seed; the others have hashed seeds, so that choice i of seed s + 1 is not choice i + 1 of seed s.
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
  std::vector<int32_t> stop_token_ids = {};  // each ends the completion and is part of it
  std::vector<std::pair<int32_t, double>> logit_bias = {};
  std::vector<std::vector<int32_t>> bad_words = {};

  bool needs_history() const {
    return repetition_penalty != 1 || frequency_penalty != 0 || presence_penalty != 0 ||
           !bad_words.empty();
  }
};

}  // namespace trireme
