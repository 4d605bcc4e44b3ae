#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "engine/core/error.h"
#include "parallel/context/token_slices.h"
#include "tests/parallel/context/context_case.h"

namespace trireme::test::test_token_slices {
namespace {

std::vector<ContextLayout> layouts() {
  std::vector<ContextLayout> all;
  for (const ContextBalance balance : {ContextBalance::kZigzag, ContextBalance::kContiguous})
    for (const int ranks : {1, 2, 3, 4, 8})
      for (const int64_t length : {1, 13, 48})
        for (const int64_t multiple : {1, 4})
          all.push_back(make_context_layout(3, length, ranks, multiple, balance));
  return all;
}

TEST(ChunkOffsets, CutDocumentsFromTheirBeginning) {
  const std::vector<int32_t> documents = {0, 7, 8, 8, 17};
  EXPECT_EQ(chunk_offsets(documents, 4), (std::vector<int32_t>{0, 4, 7, 8, 12, 16, 17}));
  EXPECT_EQ(chunk_offsets(documents, 100), (std::vector<int32_t>{0, 7, 8, 17}));
  EXPECT_EQ(chunk_offsets({}, 4), std::vector<int32_t>{0});
  EXPECT_THROW(chunk_offsets(documents, 0), Error);
}

TEST(TokenSlices, EveryTokenHasOneHolder) {
  for (const ContextLayout& layout : layouts()) {
    std::vector<int64_t> held;
    for (int r = 0; r < layout.ranks; ++r) {
      const std::vector<int64_t> mine = tokens_of_rank(layout, r);
      EXPECT_EQ(std::ssize(mine), layout.local_tokens());
      std::ranges::copy_if(mine, std::back_inserter(held), [](int64_t t) { return t >= 0; });
    }
    std::ranges::sort(held);
    EXPECT_EQ(std::ssize(held), layout.rows * layout.length);
    for (int64_t t = 0; t < std::ssize(held); ++t) ASSERT_EQ(held[static_cast<size_t>(t)], t);
  }
}

TEST(TokenSlices, ChunksAreTheShortestThatFit) {
  const ContextLayout layout = make_context_layout(2, 37, 4, 2, ContextBalance::kZigzag);
  EXPECT_EQ(layout.chunk, 6);
  EXPECT_EQ(layout.padded_length(), 48);
  EXPECT_EQ(layout.chunks(0), (std::array<int64_t, 2>{0, 7}));
  EXPECT_EQ(layout.chunks(3), (std::array<int64_t, 2>{3, 4}));
  const std::vector<int64_t> first = tokens_of_rank(layout, 0);
  EXPECT_EQ(first[5], 5);
  EXPECT_EQ(first[6], -1);  // chunk 7 begins at 42
  EXPECT_EQ(first[12], 37);
  EXPECT_THROW(make_context_layout(1 << 20, 1 << 20, 2, 1, ContextBalance::kZigzag), Error);
}

// Members' tokens in the order of the group are those of one rank of the grouped layout.
TEST(TokenSlices, NeighboursTogetherAreOneRankOfACoarserLayout) {
  for (const ContextLayout& layout : layouts())
    for (int together = 1; together <= layout.ranks; ++together) {
      if (layout.ranks % together != 0) continue;
      for (int group = 0; group < layout.ranks / together; ++group) {
        std::vector<int64_t> received;
        for (int member = 0; member < together; ++member)
          for (const int64_t t : tokens_of_rank(layout, group * together + member))
            received.push_back(t);
        std::vector<int64_t> ordered;
        for (const int32_t from : order_of_group(layout, together, group))
          ordered.push_back(received[static_cast<size_t>(from)]);
        EXPECT_EQ(ordered, tokens_of_rank(layout.grouped(together), group));
      }
    }
}

// Every (query, key) of one document with key <= query is in exactly one segment of one pair of
// ranks.
TEST(TokenSlices, SegmentsAreExactlyTheCausalPairs) {
  for (const ContextLayout& layout : layouts()) {
    const std::vector<int64_t> documents = {1, 5, 1, 20};
    const ContextCase c = packed(layout.rows, layout.length, documents);
    const auto document_of = [&](int64_t token) {
      return std::ranges::upper_bound(c.cu, token) - c.cu.begin();
    };
    std::set<std::pair<int64_t, int64_t>> seen;
    for (int qr = 0; qr < layout.ranks; ++qr)
      for (int kr = 0; kr < layout.ranks; ++kr) {
        const std::vector<int64_t> queries = tokens_of_rank(layout, qr);
        const std::vector<int64_t> keys = tokens_of_rank(layout, kr);
        std::vector<int32_t> positions(keys.size());
        key_positions(layout, kr, c.cu, positions);
        std::vector<AttentionSegment> segments;
        segments_between(layout, qr, kr, c.cu, segments);
        for (const AttentionSegment& s : segments)
          for (int32_t i = 0; i < s.q_end - s.q_begin; ++i)
            for (int32_t j = 0; j < s.k_end - s.k_begin && j <= i + s.diagonal; ++j) {
              const int64_t query = queries[static_cast<size_t>(s.q_begin + i)];
              const int64_t key = keys[static_cast<size_t>(s.k_begin + j)];
              ASSERT_TRUE(seen.emplace(query, key).second);
              ASSERT_EQ(positions[static_cast<size_t>(s.k_begin + j)],
                        key - c.cu[static_cast<size_t>(document_of(key) - 1)]);
            }
      }
    size_t wanted = 0;
    for (int64_t query = 0; query < c.tokens(); ++query)
      for (int64_t key = 0; key <= query; ++key) {
        if (document_of(key) != document_of(query)) continue;
        ++wanted;
        ASSERT_TRUE(seen.contains({query, key})) << query << " does not see " << key;
      }
    EXPECT_EQ(seen.size(), wanted);
  }
}

TEST(TokenSlices, ZigzagGivesEveryRankTheSameWork) {
  for (const ContextBalance balance : {ContextBalance::kZigzag, ContextBalance::kContiguous}) {
    const ContextLayout layout = make_context_layout(1, 256, 4, 1, balance);
    const std::vector<int32_t> cu = {0, 256};
    std::vector<int64_t> pairs(4);
    for (int qr = 0; qr < 4; ++qr)
      for (int kr = 0; kr < 4; ++kr) {
        std::vector<AttentionSegment> segments;
        segments_between(layout, qr, kr, cu, segments);
        for (const AttentionSegment& s : segments)
          for (int64_t i = 0; i < s.q_end - s.q_begin; ++i)
            pairs[static_cast<size_t>(qr)] +=
                std::min<int64_t>(s.k_end - s.k_begin, i + s.diagonal + 1);
      }
    const auto [least, most] = std::ranges::minmax(pairs);
    if (balance == ContextBalance::kZigzag)
      EXPECT_EQ(least, most);
    else
      EXPECT_GT(most, 3 * least);
  }
}

TEST(TokenSlices, RefusesDocumentsThatLeaveTheirRow) {
  const ContextLayout layout = make_context_layout(2, 10, 2, 1, ContextBalance::kZigzag);
  ContextPlan plan(layout, 0, 1);
  const std::vector<int64_t> rows(20);
  const auto build = [&](std::vector<int32_t> cu) { plan.build(cu, rows); };
  EXPECT_NO_THROW(build({0, 10, 20}));
  EXPECT_THROW(build({0, 12, 20}), Error);
  EXPECT_THROW(build({0, 10}), Error);
  EXPECT_THROW(build({}), Error);
  EXPECT_THROW(plan.build(std::vector<int32_t>{0, 10, 20}, std::vector<int64_t>(19)), Error);
}

}  // namespace
}  // namespace trireme::test::test_token_slices
