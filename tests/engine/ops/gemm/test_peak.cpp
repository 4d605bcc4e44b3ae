#include <gtest/gtest.h>

#include <vector>

#include "engine/core/amx.h"
#include "engine/core/built_isas.h"
#include "engine/core/cpu.h"
#include "engine/ops/gemm/peak.cpu.h"
#include "engine/ops/gemm/peak.h"

namespace trireme::test::test_peak {
namespace {

TEST(Peak, IsPlausible) {
  const MachinePeak one = measure_peak(1);
  // No core runs more than a thousand operations per nanosecond, ten thousand with matrix tiles; a
  // loop that was optimized away would seem to. The lower bounds allow for a machine that is busy
  // with other tests.
  EXPECT_GT(one.float32_gflops, 0.01);
  EXPECT_LT(one.float32_gflops, 1000);
  EXPECT_GT(one.bfloat16_gflops, 0.01);
  EXPECT_LT(one.bfloat16_gflops, may_use_amx_bf16() ? 10000 : 2000);
  for (const auto& rates : {one.read_gbytes, one.update_gbytes})
    for (const double gbytes : rates) {
      EXPECT_GT(gbytes, 0.01);
      EXPECT_LT(gbytes, 10000);
    }
  EXPECT_EQ(one.threads, 1);
}

TEST(Peak, RunsOnEveryInstructionSet) {
  for (const Isa isa : {Isa::kAvx512, Isa::kAvx2, Isa::kPortable}) {
    if (!has_isa(isa)) continue;
    set_active_isa(isa);
    EXPECT_GT(measure_peak(2).float32_gflops, 0.01) << isa_name(isa);
  }
  set_active_isa(best_isa());
}

TEST(Peak, IsRaisedByALaterTryOnly) {
  MachinePeak peak{.threads = 2, .float32_gflops = 5, .bfloat16_gflops = 7, .read_gbytes = {9, 3}};
  raise_peak(peak,
             {.threads = 1, .float32_gflops = 6, .bfloat16_gflops = 6, .read_gbytes = {8, 4}});
  EXPECT_EQ(peak.threads, 2);
  EXPECT_EQ(peak.float32_gflops, 6);
  EXPECT_EQ(peak.bfloat16_gflops, 7);
  EXPECT_EQ(peak.read_gbytes[0], 9);
  EXPECT_EQ(peak.read_gbytes[1], 4);
}

TEST(Peak, ReadingIsThatOfTheLargestSizeThatIsNotLarger) {
  MachinePeak peak;
  for (size_t i = 0; i < peak.read_gbytes.size(); ++i)
    peak.read_gbytes[i] = 100 - static_cast<double>(i);
  EXPECT_EQ(peak.reading_gbytes(0), 100);
  EXPECT_EQ(peak.reading_gbytes(512 << 10), 99);
  EXPECT_EQ(peak.reading_gbytes((1 << 20) - 1), 99);
  EXPECT_EQ(peak.reading_gbytes(1 << 20), 98);
  EXPECT_EQ(peak.reading_gbytes(1e12), peak.memory_gbytes());
  EXPECT_EQ(peak.memory_gbytes(), 90);
  peak.update_gbytes[2] = 120;
  EXPECT_EQ(peak.moving_gbytes(2 << 20), 120);
  EXPECT_EQ(peak.moving_gbytes(4 << 20), 97);
}

#if TRIREME_BUILT_AVX512
TEST(Peak, TilesAddEveryProduct) {
  if (best_isa() != Isa::kAvx512 || !may_use_amx_bf16())
    GTEST_SKIP() << "this processor has no AMX tiles of bfloat16";
  for (const int threads : {1, 2}) {
    cpu::PeakLoop loop{.rounds = 3};
    cpu::avx512::tile_product_loop(loop, threads);
    EXPECT_EQ(loop.sink, static_cast<float>(threads * 3 * 64));
    EXPECT_EQ(loop.operations, 2.0 * 4 * 16 * 16 * 32 * 3 * threads);
  }
}
#endif

TEST(Peak, HalvesEveryElementOnce) {
  for (const int64_t n : {0, 5, 64, 1000, 4099})
    for (const int streams : {1, 4})
      for (const int threads : {1, 3}) {
        std::vector<float> data(static_cast<size_t>(n), 4.0f);
        cpu::portable::halve_loop(data.data(), n, streams, threads);
        EXPECT_EQ(data, std::vector<float>(static_cast<size_t>(n), 2.0f)) << n << " " << streams;
      }
}

TEST(Peak, ReadsEveryElementWhateverTheStreams) {
  for (const int64_t n : {0, 5, 64, 1000, 4099}) {
    std::vector<float> data(static_cast<size_t>(n), 1.0f);
    for (const int streams : {1, 4, 8})
      for (const int threads : {1, 3}) {
        float sum = 2.0f;
        cpu::portable::read_loop(data.data(), n, streams, sum, threads);
        EXPECT_EQ(sum, 2.0f + static_cast<float>(n)) << n << " " << streams << " " << threads;
      }
  }
}

}  // namespace
}  // namespace trireme::test::test_peak
