// Memory of a GPU is divided among its ranks by what each of them needs.
#include <gtest/gtest.h>

#include <vector>

#include "serving/model/gpu_memory.h"

namespace trireme::test_gpu_memory {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20, kGiB = int64_t{1} << 30;

TEST(GpuMemory, StepsOfItsRanksAddUp) {
  // Two hosts with two GPUs each; the last pipeline stage has the logits.
  const std::vector<RankStep> steps = {{0, 0, 100}, {0, 1, 20}, {0, 0, 3},
                                       {1, 0, 100}, {1, 1, 20}, {1, 0, 900}};
  EXPECT_EQ(step_bytes_on_gpu(steps, 0, 2), 103);
  EXPECT_EQ(step_bytes_on_gpu(steps, 2, 2), 103);
  EXPECT_EQ(step_bytes_on_gpu(steps, 1, 1), 20);
  EXPECT_EQ(step_bytes_on_gpu(steps, 3, 2), 1000);
  EXPECT_EQ(step_bytes_on_gpu(steps, 5, 2), 1000);
}

// Replicas are groups of their own: only the number of their ranks on the GPU is known.
TEST(GpuMemory, RanksOfOtherGroupsCountAsTheLargest) {
  const std::vector<RankStep> steps = {{0, 0, 100}, {0, 1, 900}, {0, 0, 3}};
  EXPECT_EQ(step_bytes_on_gpu(steps, 0, 3), 103 + 900);
  EXPECT_EQ(step_bytes_on_gpu(steps, 1, 3), 900 + 2 * 900);
}

TEST(GpuMemory, CachesGetTheSameShareOfTheRest) {
  GpuMemory gpu{.total = 80 * kGiB, .used = 20 * kGiB, .share = 0.5, .step_bytes = 3 * kGiB};
  EXPECT_EQ(cache_bytes_on_gpu(gpu), 20 * kGiB);
  gpu.sharing = 4;
  EXPECT_EQ(cache_bytes_on_gpu(gpu), 5 * kGiB);
  // The memory outside the share is too little for the steps and 512 MiB per rank.
  gpu.share = 1;
  EXPECT_EQ(cache_bytes_on_gpu(gpu), (80 - 20 - 3 - 2) * kGiB / 4);
  gpu.step_bytes = 58 * kGiB - 4 * kMiB;
  EXPECT_EQ(cache_bytes_on_gpu(gpu), kMiB);
  gpu.step_bytes = 90 * kGiB;
  EXPECT_EQ(cache_bytes_on_gpu(gpu), 0);
}

}  // namespace
}  // namespace trireme::test_gpu_memory
