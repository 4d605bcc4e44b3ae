#include <gtest/gtest.h>

#include "parallel/comm/world.h"
#include "parallel/gradient_reducer.h"
#include "tests/parallel/collective_checks.h"
#include "tests/support/compare.h"

namespace trireme::test_gradient_reducer {
namespace {

using test::TestTensor;

// Blocks of a model in the order in which backward completes them: head first, embedding last, one
// empty.
std::vector<FlatRange> blocks() {
  return {{900, 1000}, {640, 900}, {380, 640}, {380, 380}, {120, 380}, {0, 120}};
}

std::vector<std::pair<int64_t, int64_t>> buckets(int64_t bucket_bytes) {
  std::vector<std::pair<int64_t, int64_t>> found;
  run_threads(1, [&](Communicator& world) {
    const TestTensor gradients(DType::kF32, {1000});
    const GradientReducer reducer(world, *gradients, blocks(), {bucket_bytes, true});
    for (const FlatRange& b : reducer.buckets()) found.emplace_back(b.begin, b.end);
  });
  return found;
}

TEST(GradientReducer, BucketsJoinNeighboursAndSplitLargeBlocks) {
  using Ranges = std::vector<std::pair<int64_t, int64_t>>;
  EXPECT_EQ(buckets(1 << 20), (Ranges{{0, 1000}}));
  EXPECT_EQ(buckets(400 * 4), (Ranges{{640, 1000}, {380, 640}, {0, 380}}));
  EXPECT_EQ(buckets(200 * 4), (Ranges{{900, 1000},
                                      {640, 770},
                                      {770, 900},
                                      {380, 510},
                                      {510, 640},
                                      {120, 250},
                                      {250, 380},
                                      {0, 120}}));
}

std::string reduced(int ranks, DType dtype, bool overlap, CommAlgorithm algorithm) {
  CommOptions options;
  options.algorithm = algorithm;
  options.ranks_per_node = 2;
  std::string result;
  run_threads(
      ranks,
      [&](Communicator& world) {
        const TestTensor gradients(dtype, {1000});
        GradientReducer reducer(world, *gradients, blocks(), {300 * 4, overlap});
        Profile profile;
        for (int step = 0; step < 3; ++step) {
          test::fill_normal(*gradients, concat("step ", step, " rank ", world.rank()));
          for (int64_t i = 0; i < 6; ++i) reducer.block_ready(i);
          reducer.wait_all(&profile);
          if (world.rank() == 0) result += test::bytes_of(*gradients);
        }
        EXPECT_GT(profile.seconds(TimeCategory::kCommunication), 0.0);
        if (world.size() > 1) {
          EXPECT_GT(reducer.busy_seconds(), 0.0);
        }
      },
      options);
  return result;
}

TEST(GradientReducer, OverlapDoesNotChangeABit) {
  for (CommAlgorithm algorithm : {CommAlgorithm::kRing, CommAlgorithm::kAuto})
    for (DType dtype : {DType::kF32, DType::kF64})
      EXPECT_TRUE(reduced(4, dtype, true, algorithm) == reduced(4, dtype, false, algorithm));
}

TEST(GradientReducer, SumsOverTheRanks) {
  run_threads(3, [](Communicator& world) {
    const TestTensor gradients(DType::kF64, {1000});
    GradientReducer reducer(world, *gradients, blocks(), {200 * 8, true});
    test::fill(*gradients, world.rank());
    for (int64_t i : {5, 0, 3, 1, 2, 4}) reducer.block_ready(i);  // order of a schedule
    reducer.wait_all(nullptr);
    for (int64_t i = 0; i < 1000; ++i) {
      const double want = test::operand(0, i) + test::operand(1, i) + test::operand(2, i);
      ASSERT_EQ(gradients->as<double>()[i], want) << i;
    }
    EXPECT_TRUE(gradients.guards_intact());
  });
}

TEST(GradientReducer, RefusesWrongUse) {
  run_threads(1, [](Communicator& world) {
    const TestTensor gradients(DType::kF32, {100});
    EXPECT_THROW(GradientReducer(world, *gradients, {{0, 60}, {50, 100}}, {}), Error);
    EXPECT_THROW(GradientReducer(world, *gradients, {{0, 101}}, {}), Error);
    EXPECT_THROW(GradientReducer(world, *gradients, {{0, 100}}, {0, true}), Error);
    GradientReducer reducer(world, *gradients, {{50, 100}, {0, 50}}, {});
    reducer.block_ready(1);
    EXPECT_THROW(reducer.block_ready(1), Error);
    EXPECT_THROW(reducer.wait_all(nullptr), Error);
    reducer.block_ready(0);
    reducer.wait_all(nullptr);
    EXPECT_THROW(reducer.block_ready(2), Error);
  });
}

}  // namespace
}  // namespace trireme::test_gradient_reducer
