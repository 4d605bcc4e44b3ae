#include "serving/scheduler/beam_search.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "engine/core/error.h"

namespace trireme {

BeamSearch::BeamSearch(BeamSearchConfig config) : config_(std::move(config)), beams_(1) {
  TRIREME_CHECK(config_.width > 0 && config_.max_tokens > 0,
                "beam search: expected at least 1 beam and 1 token, got ", config_.width,
                " beams and ", config_.max_tokens, " tokens");
}

// Leaves `width` candidates even if all stop token ids are among a beam's most probable tokens.
int64_t BeamSearch::candidates() const {
  return std::max<int64_t>(2 * config_.width, config_.width + std::ssize(config_.stop_token_ids));
}

bool BeamSearch::ends(int32_t id) const {
  return std::ranges::find(config_.stop_token_ids, id) != config_.stop_token_ids.end();
}

// Score of a completion with one token per round so far.
double BeamSearch::score(double logprob) const {
  return logprob / std::pow(static_cast<double>(rounds_), config_.length_penalty);
}

std::vector<int32_t> BeamSearch::tokens(size_t beam) const {
  std::vector<int32_t> ids;
  for (int32_t at = beams_[beam].last; at >= 0; at = nodes_[static_cast<size_t>(at)].parent)
    ids.push_back(nodes_[static_cast<size_t>(at)].token.id);
  std::ranges::reverse(ids);
  return ids;
}

int32_t BeamSearch::add_node(const Candidate& candidate, std::span<const TokenLogprob> following) {
  Node node{.parent = beams_[candidate.beam].last,
            .token = {.id = candidate.token.id, .logprob = candidate.token.logprob}};
  if (config_.top_logprobs > 0) {
    const size_t kept = std::min(following.size(), static_cast<size_t>(config_.top_logprobs));
    node.token.top.assign(following.begin(), following.begin() + static_cast<std::ptrdiff_t>(kept));
  }
  bytes_ += int64_t{sizeof(Node)} + std::ssize(node.token.top) * int64_t{sizeof(TokenLogprob)};
  nodes_.push_back(std::move(node));
  return static_cast<int32_t>(nodes_.size() - 1);
}

void BeamSearch::keep(Done text) {
  const auto at = std::ranges::upper_bound(texts_, text.score, std::greater<>(), &Done::score);
  texts_.insert(at, text);
  if (std::ssize(texts_) > config_.width) texts_.pop_back();
}

void BeamSearch::advance(std::span<const std::vector<TokenLogprob>> following) {
  TRIREME_CHECK(following.size() == beams_.size(), following.size(),
                " token lists, expected one for each of ", beams_.size(), " beams");
  std::vector<Candidate> all;
  for (size_t b = 0; b < following.size(); ++b)
    for (const TokenLogprob& token : following[b])
      all.push_back({b, token, beams_[b].logprob + token.logprob});
  std::ranges::sort(all, [](const Candidate& x, const Candidate& y) {
    return std::tuple(-x.logprob, x.beam, x.token.id) < std::tuple(-y.logprob, y.beam, y.token.id);
  });
  ++rounds_;
  const bool may_end = rounds_ > config_.min_tokens;
  const bool last = rounds_ == config_.max_tokens;
  std::vector<Beam> next;
  int64_t rank = 0;
  for (const Candidate& candidate : all) {
    if (std::ssize(next) == config_.width) break;
    const bool end = ends(candidate.token.id);
    if (end && !may_end) continue;
    const bool first = rank++ < config_.width;
    if (end && !first) continue;
    const int32_t node = add_node(candidate, following[candidate.beam]);
    if (end)
      keep({node, score(candidate.logprob), true});
    else
      next.push_back({node, candidate.logprob});
  }
  beams_ = std::move(next);
  if (last)
    for (const Beam& beam : beams_) keep({beam.last, score(beam.logprob), false});
  const bool beaten = std::ssize(texts_) == config_.width && !beams_.empty() &&
                      texts_.back().score >= score(beams_.front().logprob);
  if (last || beaten) beams_.clear();
}

std::vector<BeamSearch::Completion> BeamSearch::best(size_t n) const {
  TRIREME_CHECK(done(), "best() was called before the search is done");
  std::vector<Completion> out;
  for (const Done& done : std::span(texts_).first(std::min(n, texts_.size()))) {
    Completion text{.score = done.score, .ended = done.ended};
    for (int32_t at = done.last; at >= 0; at = nodes_[static_cast<size_t>(at)].parent)
      text.tokens.push_back(nodes_[static_cast<size_t>(at)].token);
    std::ranges::reverse(text.tokens);
    out.push_back(std::move(text));
  }
  return out;
}

}  // namespace trireme
