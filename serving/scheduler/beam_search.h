// Beam search (Lowerre 1976): the texts that a search of `width` beginnings finds most probable.
// Nothing is drawn.
//
// Round by round each beginning ("beam") is followed by its most probable tokens. All of these
// candidates are put in the order of their sum of log-probabilities (descending; ties to the
// earlier beam, then to the lower id). The first `width` that end no text are the beams of the next
// round; those among the first `width` of all that end one are texts. With
//
//   score = sum of the log-probabilities of the text's tokens, that which ends it included / their number^length_penalty
//
// the best `width` texts are kept. The search is over when no beam is left, when the beams are
// max_tokens long (then they are texts too), or when there are `width` texts and the best beam, as
// long as it is, would score below them all. That is what other libraries do too (HuggingFace's
// generate, early_stopping=False); with a length_penalty above 0 a longer text of a beam that was
// given up might still have scored better.
//
// Not for several threads.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "serving/scheduler/step_plan.h"

namespace trireme {

struct BeamSearchConfig {
  int64_t width = 1;       // at least one
  int64_t max_tokens = 1;  // of a text, at least one
  int64_t min_tokens = 0;  // of a text that ends by itself
  double length_penalty = 1;
  std::vector<int32_t> end_ids = {};  // end a text and belong to it
  int32_t told = -1;  // of each token so many of the most probable beside it are kept; -1: none
};

class BeamSearch {
 public:
  struct Text {
    std::vector<ChosenToken> tokens = {};
    double score = 0;
    bool ended = false;  // by its last token
  };

  explicit BeamSearch(BeamSearchConfig config);

  // How many of the most probable tokens advance() wants, of a vocabulary that has as many.
  int64_t candidates() const;
  // The beams that are open; at first one, without a token.
  size_t beams() const { return beams_.size(); }
  std::vector<int32_t> tokens(size_t beam) const;
  // A round. following[i]: the most probable tokens behind beam i, in descending order,
  // candidates() or all there are.
  void advance(std::span<const std::vector<TokenLogprob>> following);

  bool done() const { return beams_.empty(); }
  int64_t rounds() const { return rounds_; }  // tokens of each beam
  // Once done: the best n, or as many as there are, in descending order of their scores.
  std::vector<Text> best(size_t n) const;
  int64_t bytes() const { return bytes_; }  // that it holds, roughly

 private:
  struct Node {  // a token of a tree of texts
    int32_t parent = -1;
    ChosenToken token;
  };
  struct Beam {
    int32_t last = -1;  // of nodes_; -1: no token
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
  std::vector<Done> texts_;  // descending
  int64_t rounds_ = 0, bytes_ = 0;
};

}  // namespace trireme
