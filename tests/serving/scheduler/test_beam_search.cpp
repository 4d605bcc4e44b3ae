#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <random>

#include "serving/scheduler/beam_search.h"

namespace trireme::test_beam_search {
namespace {

constexpr int32_t kVocabulary = 4, kEnd = 3;

// Log-probabilities of the next tokens of a text: random, but a function of the text.
std::vector<TokenLogprob> following(const std::vector<int32_t>& text) {
  uint64_t seed = 17;
  for (const int32_t id : text) seed = seed * 1000003 + static_cast<uint64_t>(id) + 1;
  std::mt19937_64 source(seed);
  std::vector<TokenLogprob> all;
  double sum = 0;
  for (int32_t id = 0; id < kVocabulary; ++id) {
    all.push_back({id, std::uniform_real_distribution<>(0.05, 1)(source)});
    sum += all.back().logprob;
  }
  for (TokenLogprob& token : all) token.logprob = std::log(token.logprob / sum);
  std::ranges::sort(all, std::greater<>(), &TokenLogprob::logprob);
  return all;
}

std::vector<int32_t> ids_of(const BeamSearch::Completion& text) {
  std::vector<int32_t> ids;
  for (const OutputToken& token : text.tokens) ids.push_back(token.id);
  return ids;
}

BeamSearch searched(const BeamSearchConfig& config) {
  BeamSearch search(config);
  while (!search.done()) {
    std::vector<std::vector<TokenLogprob>> continuations;
    for (size_t b = 0; b < search.beams(); ++b) {
      continuations.push_back(following(search.tokens(b)));
      if (std::ssize(continuations.back()) > search.candidates())
        continuations.back().resize(static_cast<size_t>(search.candidates()));
    }
    search.advance(continuations);
  }
  return search;
}

// All texts by their scores.
std::map<double, std::vector<int32_t>, std::greater<>> all_texts(int64_t max_tokens, double penalty,
                                                                 int64_t min_tokens = 0) {
  std::map<double, std::vector<int32_t>, std::greater<>> out;
  const std::function<void(std::vector<int32_t>, double)> go = [&](const std::vector<int32_t>& text,
                                                                   double logprob) {
    const bool ended = !text.empty() && text.back() == kEnd;
    if (ended || std::ssize(text) == max_tokens) {
      out[logprob / std::pow(static_cast<double>(text.size()), penalty)] = text;
      return;
    }
    for (const TokenLogprob& token : following(text)) {
      if (token.id == kEnd && std::ssize(text) < min_tokens) continue;
      std::vector<int32_t> longer = text;
      longer.push_back(token.id);
      go(longer, logprob + token.logprob);
    }
  };
  go({}, 0);
  return out;
}

TEST(BeamSearch, FindsTheBestOfAllTextsWhereItKeepsThemAll) {
  // 3^5 prefixes to continue, and at most as many texts. Without a length penalty more tokens never
  // improve a score, so that early stopping loses nothing.
  for (const int64_t min_tokens : {0, 2}) {
    const BeamSearch search = searched({.width = 400,
                                        .max_tokens = 5,
                                        .min_tokens = min_tokens,
                                        .length_penalty = 0,
                                        .stop_token_ids = {kEnd}});
    const auto texts = all_texts(5, 0, min_tokens);
    const std::vector<BeamSearch::Completion> best = search.best(20);
    ASSERT_EQ(best.size(), 20u);
    auto wanted = texts.begin();
    for (const BeamSearch::Completion& text : best) {
      EXPECT_EQ(ids_of(text), wanted->second);
      EXPECT_NEAR(text.score, wanted->first, 1e-12);
      EXPECT_EQ(text.ended, wanted->second.back() == kEnd);
      ++wanted;
    }
  }
}

// The same search written for one beam after the other, without a tree.
std::vector<std::vector<int32_t>> plain_search(size_t width, int64_t max_tokens, double penalty) {
  struct Beam {
    std::vector<int32_t> ids;
    double logprob = 0;
  };
  std::vector<Beam> beams(1);
  std::vector<std::pair<double, std::vector<int32_t>>> texts;
  for (int64_t length = 1; length <= max_tokens && !beams.empty(); ++length) {
    std::vector<Beam> longer;
    for (const Beam& beam : beams)
      for (const TokenLogprob& token : following(beam.ids)) {
        longer.push_back({beam.ids, beam.logprob + token.logprob});
        longer.back().ids.push_back(token.id);
      }
    std::ranges::stable_sort(longer, std::greater<>(), &Beam::logprob);
    beams.clear();
    const double scale = std::pow(static_cast<double>(length), penalty);
    for (size_t rank = 0; rank < longer.size() && beams.size() < width; ++rank) {
      const bool ends = longer[rank].ids.back() == kEnd;
      if (!ends) beams.push_back(longer[rank]);
      if ((ends && rank < width))
        texts.emplace_back(longer[rank].logprob / scale, longer[rank].ids);
    }
    if (length == max_tokens)
      for (const Beam& beam : beams) texts.emplace_back(beam.logprob / scale, beam.ids);
    std::ranges::stable_sort(texts, std::greater<>(), [](const auto& text) { return text.first; });
    texts.resize(std::min(texts.size(), width));
    if (texts.size() == width && !beams.empty() && texts.back().first >= beams[0].logprob / scale)
      break;
  }
  std::vector<std::vector<int32_t>> out;
  for (const auto& text : texts) out.push_back(text.second);
  return out;
}

TEST(BeamSearch, DoesAsTheSearchSays) {
  for (const int64_t width : {1, 2, 3, 5})
    for (const double penalty : {-1.0, 0.0, 0.7, 1.0, 2.0})
      for (const int64_t most : {1, 2, 7, 12}) {
        const BeamSearch search = searched({.width = width,
                                            .max_tokens = most,
                                            .length_penalty = penalty,
                                            .stop_token_ids = {kEnd}});
        std::vector<std::vector<int32_t>> got;
        for (const BeamSearch::Completion& text : search.best(100)) got.push_back(ids_of(text));
        EXPECT_EQ(got, plain_search(static_cast<size_t>(width), most, penalty))
            << width << " beams, " << most << " tokens, penalty " << penalty;
      }
}

TEST(BeamSearch, OfOneBeamIsTheMostProbableTokenEachTime) {
  const BeamSearch search = searched({.width = 1, .max_tokens = 6});
  std::vector<int32_t> greedy;
  while (greedy.size() < 6) greedy.push_back(following(greedy)[0].id);
  ASSERT_EQ(search.best(1).size(), 1u);
  EXPECT_EQ(ids_of(search.best(1)[0]), greedy);
  EXPECT_FALSE(search.best(1)[0].ended);
}

TEST(BeamSearch, KeepsWhatIsReportedOfTokensAndCountsIt) {
  const BeamSearch plain = searched({.width = 3, .max_tokens = 4});
  const BeamSearch telling = searched({.width = 3, .max_tokens = 4, .top_logprobs = 2});
  EXPECT_GT(plain.bytes(), 0);
  EXPECT_EQ(telling.bytes(), plain.bytes() + 12 * 2 * int64_t{sizeof(TokenLogprob)});
  const std::vector<BeamSearch::Completion> best = telling.best(1);
  ASSERT_EQ(best.size(), 1u);
  std::vector<int32_t> text;
  for (const OutputToken& token : best[0].tokens) {
    const std::vector<TokenLogprob> all = following(text);
    ASSERT_EQ(token.top.size(), 2u);
    EXPECT_EQ(token.top[0].id, all[0].id);
    EXPECT_EQ(token.top[1].logprob, all[1].logprob);
    const auto own = std::ranges::find(all, token.id, &TokenLogprob::id);
    EXPECT_EQ(token.logprob, own->logprob);
    text.push_back(token.id);
  }
}

// However many of the most probable tokens are stop tokens, as many other candidates remain as
// there are beams.
TEST(BeamSearch, AsksForEnoughCandidates) {
  EXPECT_EQ(BeamSearch({.width = 4, .stop_token_ids = {1, 2}}).candidates(), 8);
  EXPECT_EQ(BeamSearch({.width = 2, .stop_token_ids = {1, 2, 3, 4, 5}}).candidates(), 7);
}

}  // namespace
}  // namespace trireme::test_beam_search
