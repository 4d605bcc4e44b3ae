#include <gtest/gtest.h>

#include <set>

#include "engine/core/random.h"

namespace trireme::test_random {
namespace {

// Published test vectors of philox4x32-10 (the kat_vectors file of Random123). Our counter words 2
// and 3 are the stream, words 0 and 1 the block number.
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(philox({0, 0}, 0), (PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  const uint64_t ones = ~uint64_t{0};
  EXPECT_EQ(philox({ones, ones}, ones),
            (PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  // counter 243f6a88 85a308d3 13198a2e 03707344, key a4093822 299f31d0
  EXPECT_EQ(philox({0x299f31d0a4093822u, 0x0370734413198a2eu}, 0x85a308d3243f6a88u),
            (PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, WordsAreThoseOfTheBlocks) {
  const RandomKey key{3, 5};
  for (uint64_t i = 0; i < 40; ++i) EXPECT_EQ(philox_word(key, i), philox(key, i / 4)[i % 4]);
}

TEST(Philox, SeedStreamAndIndexAllMatter) {
  std::set<uint32_t> words;
  for (uint64_t seed = 0; seed < 8; ++seed)
    for (uint64_t stream = 0; stream < 8; ++stream)
      for (uint64_t index : {uint64_t{0}, uint64_t{1}, uint64_t{4}, uint64_t{1} << 40})
        words.insert(philox_word({seed, stream}, index));
  EXPECT_EQ(words.size(), 8u * 8u * 4u) << "of 256 words none should agree";
}

TEST(Uniform, CoversZeroToBelowOne) {
  EXPECT_EQ(uniform_from_word(0), 0.0f);
  EXPECT_EQ(uniform_from_word(0xffffffffu), 1.0f - 0x1p-24f);
  EXPECT_EQ(uniform_from_word(0x80000000u), 0.5f);
}

TEST(Streams, NamesHashAsPublished) {
  // FNV-1a of the empty string, "a" and "foobar" (Fowler, Noll and Vo's test vectors).
  EXPECT_EQ(stream_id(""), 0xcbf29ce484222325u);
  EXPECT_EQ(stream_id("a"), 0xaf63dc4c8601ec8cu);
  EXPECT_EQ(stream_id("foobar"), 0x85944171f73967e8u);
}

TEST(Streams, SubstreamsDiffer) {
  std::set<uint64_t> seen;
  for (uint64_t stream = 0; stream < 50; ++stream)
    for (uint64_t number = 0; number < 50; ++number) seen.insert(substream(stream, number));
  EXPECT_EQ(seen.size(), 2500u);
  // The first two outputs of splitmix64 from seed 0.
  EXPECT_EQ(substream(0, 0), 0xe220a8397b1dcdafu);
  EXPECT_EQ(substream(0, 1), 0x6e789e6aa1b965f4u);
}

}  // namespace
}  // namespace trireme::test_random
