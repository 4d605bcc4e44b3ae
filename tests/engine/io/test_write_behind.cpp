#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include "engine/io/write_behind.h"

namespace trireme::test_write_behind {
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
  auto waiting = std::make_shared<int>();  // owned by the blocks whose use has not started
  const std::weak_ptr<int> still_waiting = waiting;
  for (int i = 0; i < 4; ++i) {
    behind.block(1);
    behind.push([&, held = i == 0 ? nullptr : waiting](std::span<std::byte>) {
      ++used;
      while (!go_on) std::this_thread::yield();
    });
  }
  waiting.reset();
  while (used == 0) std::this_thread::yield();
  // The first use ends after abandon() has dropped the others, however late this thread calls it.
  std::thread later([&] {
    const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!still_waiting.expired() && std::chrono::steady_clock::now() < patience)
      std::this_thread::yield();
    go_on = true;
  });
  behind.abandon();
  later.join();
  EXPECT_EQ(used, 1);
  behind.finish();
  EXPECT_EQ(used, 1);
}

}  // namespace
}  // namespace trireme::test_write_behind
