#include <gtest/gtest.h>

#include "engine/core/cpu.h"
#include "engine/ops/peak.h"

namespace trireme::test {
namespace {

TEST(Peak, IsPlausible) {
  const MachinePeak one = measure_peak(1);
  // No processor this runs on does fewer than one operation a nanosecond or more than a thousand
  // of each kind per core; a loop that was optimised away would be far above.
  EXPECT_GT(one.float32_gflops, 0.5);
  EXPECT_LT(one.float32_gflops, 1000);
  EXPECT_GE(one.bfloat16_gflops, 0.5);
  EXPECT_LT(one.bfloat16_gflops, 2000);
  EXPECT_GT(one.read_gbytes, 0.2);
  EXPECT_LT(one.read_gbytes, 1000);
  EXPECT_EQ(one.threads, 1);
}

TEST(Peak, NarrowVectorsAreNotFaster) {
  const double wide = measure_peak(1).float32_gflops;
  set_active_isa(Isa::kPortable);
  const double narrow = measure_peak(1).float32_gflops;
  set_active_isa(best_isa());
  EXPECT_LT(narrow, 1.2 * wide);
}

}  // namespace
}  // namespace trireme::test
