// Selection of a run's checkpoint.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/compare.h"
#include "tests/support/scratch_directory.h"
#include "transformer/checkpoint/find_checkpoint.h"

namespace trireme::test::test_find_checkpoint {
namespace {

void save(const std::string& root, int64_t step, int64_t skips) {
  const TestTensor weight(DType::kF32, {2}, std::vector<double>{1, 2});
  const ConstTensor data = weight;
  save_checkpoint({.root = root, .step = step}, {{"param", "w", {2}, {}, 0, data}},
                  {{"step", step}, {kConsecutiveSkips, skips}});
}

TEST(FindCheckpoint, PassesOverThoseOfSkippedSteps) {
  const ScratchDirectory dir;
  save(dir.path(), 10, 3);
  // There is no better one.
  EXPECT_EQ(find_checkpoint(dir.path()).directory, dir / "step-00000010");
  save(dir.path(), 20, 0);
  save(dir.path(), 30, 1);
  save(dir.path(), 40, 11);
  const NewestCheckpoint found = find_checkpoint(dir.path());
  EXPECT_EQ(found.directory, dir / "step-00000020");
  ASSERT_EQ(found.skipped.size(), 2u);
  EXPECT_EQ(found.skipped[0], std::string(dir / "step-00000040") +
                                  " was saved after 11 steps in a row that were not finite; using "
                                  "an older one");
  // A checkpoint given by its path is used.
  EXPECT_EQ(find_checkpoint(dir / "step-00000040").directory, dir / "step-00000040");
}

}  // namespace
}  // namespace trireme::test::test_find_checkpoint
