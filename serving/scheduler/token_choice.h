// How the next token of a sequence is chosen: what a request asks for, checked, in the order in
// which it acts on a row of logits l (V):
//
//   mask                   tokens that a grammar forbids get -infinity
//   min_tokens             so do the ids that end the sequence, until so many are generated
//   bad_words              so does the last token of each of these where the text ends with those before it
//   logit_bias             l[id] += bias
//   repetition_penalty r   l[id] of ids in prompt or text: / r where positive, * r else (Keskar et al. 2019)
//   frequency_penalty f    l[id] -= f * how often id is in the text (without the prompt)
//   presence_penalty p     l[id] -= p where it is
//   temperature, top_k, top_p, min_p, seed      engine/ops/sample.h
//
// Log-probabilities are of the logits as the model gives them, before all that.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "engine/core/random.h"
#include "engine/ops/sample.h"

namespace trireme {

// Number of a sequence within its request, for its random stream: of choice `choice` of prompt
// `prompt`.
constexpr uint64_t draw_of(size_t prompt, size_t choice) {
  return (uint64_t{prompt} << 32) + choice;
}

// Seed of a sequence whose request has this seed. The first choice of the first prompt has the
// request's own; those of the others are hashed, so that choice i of seed s + 1 is not choice i + 1
// of seed s.
inline uint64_t seed_of_draw(uint64_t seed, uint64_t draw) {
  if (draw == 0) return seed;
  const PhiloxBlock words = philox({seed, stream_id("seed of a draw")}, draw);
  return (uint64_t{words[1]} << 32) | words[0];
}

struct TokenChoice {
  SamplingParams sampling;
  double repetition_penalty = 1;
  double frequency_penalty = 0;
  double presence_penalty = 0;
  int32_t top_logprobs =
      -1;  // so many of the most probable beside the chosen one; -1: no log-probabilities
  int32_t prompt_logprobs = -1;  // the same for the tokens of the prompt
  int64_t min_tokens = 0;
  std::vector<int32_t> end_ids = {};  // end the sequence and belong to it
  std::vector<std::pair<int32_t, double>> logit_bias = {};
  std::vector<std::vector<int32_t>> bad_words = {};

  bool needs_history() const {
    return repetition_penalty != 1 || frequency_penalty != 0 || presence_penalty != 0 ||
           !bad_words.empty();
  }
};

}  // namespace trireme
