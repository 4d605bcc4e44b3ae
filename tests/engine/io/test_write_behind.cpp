#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "engine/io/write_behind.h"

namespace trireme {
namespace {

TEST(WriteBehind, UsesAllBlocksInOrder) {
  std::vector<int> used;
  WriteBehind behind(3);
  for (int i = 0; i < 100; ++i) {
    const auto block = behind.block(4 * (1 + i % 7));
    ASSERT_EQ(std::ssize(block), 4 * (1 + i % 7));
    std::memcpy(block.data(), &i, sizeof(i));
    behind.push([&used, bytes = block.size()](std::span<std::byte> filled) {
      int value = 0;
      std::memcpy(&value, filled.data(), sizeof(value));
      EXPECT_EQ(filled.size(), bytes);
      used.push_back(value);
    });
    if (i == 50) behind.finish();
  }
  behind.finish();
  ASSERT_EQ(used.size(), 100U);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(used[static_cast<size_t>(i)], i);
}

TEST(WriteBehind, ThrowsWhatAUseThrewAndCallsNoLaterOne) {
  std::atomic<int> used = 0;
  WriteBehind behind(2);
  const auto push_all = [&] {
    for (int i = 0; i < 10; ++i) {
      behind.block(1);
      behind.push([&used](std::span<std::byte>) {
        if (++used == 3) throw std::runtime_error("the third");
      });
    }
    behind.finish();
  };
  EXPECT_THROW(push_all(), std::runtime_error);
  EXPECT_THROW(behind.finish(), std::runtime_error);
  EXPECT_EQ(used, 3);
}

TEST(WriteBehind, AbandonedBlocksAreNotUsed) {
  std::atomic<int> used = 0;
  std::atomic<bool> go_on = false;
  WriteBehind behind(4);
  for (int i = 0; i < 4; ++i) {
    behind.block(1);
    behind.push([&](std::span<std::byte>) {
      ++used;
      while (!go_on) std::this_thread::yield();
    });
  }
  while (used == 0) std::this_thread::yield();
  std::thread later([&] { go_on = true; });
  behind.abandon();
  later.join();
  EXPECT_LT(used, 4);
  const int before = used;
  behind.finish();
  EXPECT_EQ(used, before);
}

}  // namespace
}  // namespace trireme
