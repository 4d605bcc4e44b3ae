#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "engine/core/parallel_for.h"

namespace trireme::test_parallel_for {
namespace {

TEST(ParallelFor, VisitsEveryItemOnce) {
  for (int threads : {1, 2, 3})
    for (int64_t n : {0, 1, 2, 7, 33, 1000})
      for (int64_t grain : {1, 5, 100}) {
        std::vector<std::atomic<int>> visits(static_cast<size_t>(n));
        std::atomic<int> calls{0};
        parallel_for(threads, n, grain, [&](int64_t begin, int64_t end) {
          EXPECT_LT(begin, end);
          ++calls;
          for (int64_t i = begin; i < end; ++i) ++visits[static_cast<size_t>(i)];
        });
        for (const auto& v : visits) ASSERT_EQ(v, 1) << threads << " " << n << " " << grain;
        EXPECT_LE(calls, threads);
        if (n > 0) {
          EXPECT_LE(calls, (n + grain - 1) / grain) << "more threads than are worth it";
        }
      }
}

TEST(ParallelFor, SmallWorkStaysOnTheCaller) {
  const int caller = omp_get_level();
  parallel_for(4, 10, 10, [&](int64_t begin, int64_t end) {
    EXPECT_EQ(omp_get_level(), caller);
    EXPECT_EQ(begin, 0);
    EXPECT_EQ(end, 10);
  });
}

TEST(ParallelFor, UsesTheTeam) {
  std::atomic<int> calls{0};
  parallel_for(3, 300, 1, [&](int64_t, int64_t) { ++calls; });
  EXPECT_EQ(calls, 3);
}

// Kernel thread ids of the threads that compute n items.
std::set<pid_t> threads_of(int64_t n) {
  std::mutex mutex;
  std::set<pid_t> ids;
  parallel_for(4, n, 1, [&](int64_t, int64_t) {
    const std::lock_guard lock(mutex);
    ids.insert(gettid());
  });
  return ids;
}

TEST(ParallelFor, KeepsItsThreadsWhereThereIsLittleWork) {
  const std::set<pid_t> all = threads_of(400);
  EXPECT_EQ(all.size(), 4u);
  EXPECT_EQ(threads_of(2).size(), 2u);
  EXPECT_EQ(threads_of(400), all);
}

TEST(ParallelPieces, VisitsEveryItemOnce) {
  for (int threads : {1, 2, 3, 300})
    for (int64_t n : {0, 1, 2, 7, 33, 1000})
      for (int64_t piece : {1, 5, 100}) {
        std::vector<std::atomic<int>> visits(static_cast<size_t>(n));
        parallel_pieces(threads, n, piece, [&](int64_t begin, int64_t end) {
          EXPECT_LT(begin, end);
          for (int64_t i = begin; i < end; ++i) ++visits[static_cast<size_t>(i)];
        });
        for (const auto& v : visits) ASSERT_EQ(v, 1) << threads << " " << n << " " << piece;
      }
}

TEST(ParallelPieces, OthersDoWhatIsLeftOfARangeThatIsHeldUp) {
  constexpr int64_t kItems = 64;
  std::atomic<int64_t> done{0};
  const auto end_of_patience = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  parallel_pieces(2, kItems, 1, [&](int64_t begin, int64_t) {
    while (begin == 0 && done < kItems - 1 && std::chrono::steady_clock::now() < end_of_patience)
      std::this_thread::yield();
    ++done;
    if (begin == 0) {
      EXPECT_EQ(done, kItems) << "items of the range that was held up waited for it";
    }
  });
}

}  // namespace
}  // namespace trireme::test_parallel_for
