#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <vector>

#include "engine/core/heap_trim.h"
#include "tests/support/sanitized.h"

namespace trireme {
namespace {

int64_t resident_bytes() {
  std::ifstream in("/proc/self/statm");
  int64_t all = 0, resident = 0;
  in >> all >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

TEST(HeapTrim, FallsAreSeenOnce) {
  constexpr int64_t kMiB = int64_t{1} << 20;
  HeapTrim heap;
  EXPECT_FALSE(heap.has_fallen(100 * kMiB));
  EXPECT_FALSE(heap.has_fallen(1000 * kMiB));
  EXPECT_FALSE(heap.has_fallen(1000 * kMiB - HeapTrim::kFall + 1));
  EXPECT_TRUE(heap.has_fallen(1000 * kMiB - HeapTrim::kFall));
  EXPECT_FALSE(heap.has_fallen(1000 * kMiB - HeapTrim::kFall)) << "nothing was freed since";
  EXPECT_TRUE(heap.has_fallen(100 * kMiB));
  EXPECT_FALSE(heap.has_fallen(40 * kMiB)) << "a fall that is not worth a trim";
}

// Blocks too small for their own mappings, of which one in 256 is kept: the heap cannot shrink from
// its end.
TEST(HeapTrim, MemoryGoesBackAfterAPeak) {
  if (test::kSanitized || heap_in_use() <= 0) GTEST_SKIP() << "another allocator than glibc's";
  HeapTrim heap;
  heap.trim_after_fall();
  const int64_t before = resident_bytes();
  std::vector<std::string> kept;
  {
    std::vector<std::string> blocks;
    for (int i = 0; i < 32 << 10; ++i) {
      blocks.emplace_back(8000, 'a');
      if (i % 256 == 0) kept.emplace_back(8000, 'b');
    }
    EXPECT_GT(resident_bytes() - before, int64_t{200} << 20);
    heap.trim_after_fall();  // registers the peak
  }
  ASSERT_GT(resident_bytes() - before, int64_t{200} << 20) << "the allocator kept nothing";
  heap.trim_after_fall();
  EXPECT_LT(resident_bytes() - before, int64_t{32} << 20);
  EXPECT_EQ(kept.size(), 128u);
}

}  // namespace
}  // namespace trireme
