#include <gtest/gtest.h>

#include <numeric>

#include "engine/core/error.h"
#include "training/data/gpt_dataset.h"
#include "training/data/shuffle.h"

namespace trireme::test_shuffle {
namespace {

template <class T>
std::vector<T> shuffled(uint32_t seed, int n) {
  std::vector<T> items(static_cast<size_t>(n));
  std::iota(items.begin(), items.end(), T{0});
  NumpyRandomState random(seed);
  random.shuffle(std::span<T>(items));
  return items;
}

using Ints = std::vector<int32_t>;

// Printed by numpy 1.24: RandomState(seed).shuffle(arange(n)).
TEST(Shuffle, EqualsNumpy) {
  EXPECT_EQ(shuffled<int32_t>(1234, 10), (Ints{7, 2, 9, 1, 0, 8, 4, 5, 6, 3}));
  EXPECT_EQ(shuffled<int32_t>(0, 10), (Ints{2, 8, 4, 9, 1, 6, 7, 3, 0, 5}));
  EXPECT_EQ(shuffled<int32_t>(42, 17),
            (Ints{0, 1, 5, 15, 11, 14, 8, 13, 2, 9, 16, 4, 7, 10, 12, 3, 6}));
  EXPECT_EQ(shuffled<int32_t>(4294967295u, 10), (Ints{6, 9, 5, 1, 8, 0, 7, 4, 2, 3}));
  EXPECT_EQ(shuffled<int32_t>(1234, 2), (Ints{0, 1}));
  EXPECT_EQ(shuffled<int32_t>(0, 2), (Ints{1, 0}));
  EXPECT_EQ(shuffled<int32_t>(0, 1), (Ints{0}));
  uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a over the elements of a long shuffle
  for (const uint32_t item : shuffled<uint32_t>(7, 100000)) hash = (hash ^ item) * 0x100000001b3u;
  EXPECT_EQ(hash, 0xb57dd85d36a86337u);
}

}  // namespace
}  // namespace trireme::test_shuffle
