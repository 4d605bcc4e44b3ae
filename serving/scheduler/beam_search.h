// Beam search (Lowerre 1976) with `width` beams: finds the most probable completions.
// Deterministic: nothing is sampled.
//
// Each round extends every beam (a partial completion) by its most probable tokens. All candidates
// are sorted by the sum of their log-probabilities (descending; ties: earlier beam first, then
// lower id). The first `width` candidates that do not end with a stop token are the beams of the
// next round. A candidate that ends with a stop token is a finished completion if it is among the
// first `width` of all candidates. A stop token before min_tokens makes no candidate. The `width`
// completions with the highest scores are kept; a stop token counts as one of the tokens:
//
//   score = sum of the log-probabilities of its tokens / (number of its tokens)^length_penalty
//
// The search ends when one of these holds:
//  - no beam is left;
//  - the beams are max_tokens long, which finishes them, too;
//  - `width` completions are finished, and the best beam at its current length does not score
//    above the worst of them.
// HuggingFace's generate() stops the same way with early_stopping=False. With a length_penalty
// above 0, a beam dropped at the end might have scored better at a greater length.
//
// Not thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "serving/scheduler/scheduler_output.h"

namespace trireme {

struct BeamSearchConfig {
  int64_t width = 1;       // beams, at least one
  int64_t max_tokens = 1;  // maximum tokens of a completion, at least one
  int64_t min_tokens = 0;  // minimum tokens of a completion before its stop token
  double length_penalty = 1;
  std::vector<int32_t> stop_token_ids = {};  // each ends a completion and is part of it
  int32_t top_logprobs = -1;  // number of top log-probabilities kept with each token; 0, -1: none
};

class BeamSearch {
 public:
  struct Completion {
    std::vector<OutputToken> tokens = {};
    double score = 0;
    bool ended = false;  // by a stop token, not by max_tokens
  };

  explicit BeamSearch(BeamSearchConfig config);

  // Number of most probable tokens per beam that advance() needs. A smaller vocabulary has fewer.
  int64_t candidates() const;
  // Number of open beams; 1, without tokens, before the first round.
  size_t beams() const { return beams_.size(); }
  std::vector<int32_t> tokens(size_t beam) const;  // ids of a beam's tokens, without the prompt
  // Runs a round. following[i]: the candidates() most probable tokens after beam i, or the whole
  // vocabulary if it has fewer, in descending order.
  void advance(std::span<const std::vector<TokenLogprob>> following);

  bool done() const { return beams_.empty(); }
  int64_t rounds() const { return rounds_; }  // length of every beam in tokens
  // Up to n best completions, by descending score. Only once done().
  std::vector<Completion> best(size_t n) const;
  int64_t bytes() const { return bytes_; }  // approximate memory of the search

 private:
  struct Node {  // token in the tree of completions
    int32_t parent = -1;
    OutputToken token;
  };
  struct Beam {
    int32_t last = -1;  // index into nodes_; -1: no token
    double logprob = 0;
  };
  struct Done {
    int32_t last;
    double score;
    bool ended;
  };
  struct Candidate {
    size_t beam;
    TokenLogprob token;
    double logprob;
  };
  double score(double logprob) const;
  bool ends(int32_t id) const;
  int32_t add_node(const Candidate& candidate, std::span<const TokenLogprob> following);
  void keep(Done text);

  BeamSearchConfig config_;
  std::vector<Node> nodes_;
  std::vector<Beam> beams_;
  std::vector<Done> texts_;  // by descending score
  int64_t rounds_ = 0, bytes_ = 0;
};

}  // namespace trireme
