#include <gtest/gtest.h>

#include "engine/core/cpu.h"
#include "engine/ops/peak.h"

namespace trireme::test::test_peak {
namespace {

TEST(Peak, IsPlausible) {
  const MachinePeak one = measure_peak(1);
  // No core does more than a thousand operations a nanosecond: a loop that was optimised away
  // would. The lower bounds allow for a machine that is busy with other tests.
  EXPECT_GT(one.float32_gflops, 0.01);
  EXPECT_LT(one.float32_gflops, 1000);
  EXPECT_GT(one.bfloat16_gflops, 0.01);
  EXPECT_LT(one.bfloat16_gflops, 2000);
  EXPECT_GT(one.read_gbytes, 0.01);
  EXPECT_LT(one.read_gbytes, 1000);
  EXPECT_EQ(one.threads, 1);
}

TEST(Peak, RunsOnEveryInstructionSet) {
  for (const Isa isa : {Isa::kAvx512, Isa::kAvx2, Isa::kPortable}) {
    if (isa < best_isa()) continue;
    set_active_isa(isa);
    EXPECT_GT(measure_peak(2).float32_gflops, 0.01) << isa_name(isa);
  }
  set_active_isa(best_isa());
}

}  // namespace
}  // namespace trireme::test::test_peak
