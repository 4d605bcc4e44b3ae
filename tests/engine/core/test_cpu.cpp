#include <gtest/gtest.h>
#include <omp.h>
#include <sched.h>

#include <algorithm>
#include <thread>

#include "engine/core/cpu.h"
#include "engine/core/error.h"

namespace trireme::test_cpu {
namespace {

TEST(Cpu, IsaCanBeLoweredAndNotRaised) {
  const Isa before = active_isa();
  for (Isa isa : {Isa::kAvx512, Isa::kAvx2, Isa::kPortable}) {
    if (has_isa(isa)) {
      set_active_isa(isa);
      EXPECT_EQ(active_isa(), isa);
    } else {
      EXPECT_THROW(set_active_isa(isa), InputError);
    }
  }
  set_active_isa(before);
  EXPECT_STREQ(isa_name(Isa::kAvx512), "avx512");
  EXPECT_STREQ(isa_name(Isa::kAvx2), "avx2");
  EXPECT_STREQ(isa_name(Isa::kPortable), "portable");
}

TEST(Cpu, DescribesItself) {
  EXPECT_FALSE(cpu_model_name().empty());
  const std::string features = cpu_features();
  if (best_isa() == Isa::kAvx512) {
    EXPECT_NE(features.find("avx512f"), std::string::npos) << features;
  }
  EXPECT_EQ(cpu_has_avx512_bf16(), features.find("avx512_bf16") != std::string::npos) << features;
}

TEST(Cpu, CountsTheCoresThatMayBeUsed) {
  EXPECT_GE(available_cores(), 1);
  EXPECT_LE(available_cores(), static_cast<int>(std::thread::hardware_concurrency()));
}

int allowed_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 0;
}

// In a separate thread, because pinning persists in the thread.
TEST(Cpu, PinsEachThreadOfATeamToOneCore) {
  std::thread([] {
    const int threads = 3;  // more than some machines have: they then share cores
    pin_team(1, threads);
    EXPECT_EQ(omp_get_max_threads(), threads);
    int pinned = 0, members = 0;
#pragma omp parallel num_threads(threads) reduction(+ : pinned, members)
    {
      ++members;
      if (omp_get_thread_num() > 0 && allowed_cores() == 1) ++pinned;
    }
    EXPECT_EQ(members, threads);
    EXPECT_EQ(pinned, threads - 1);
    // New OpenMP threads inherit the cores of the thread that starts them.
    EXPECT_EQ(allowed_cores(), std::min(threads, available_cores()));
  }).join();
}

TEST(Cpu, RefusesAnEmptyTeam) {
  EXPECT_THROW(pin_team(0, 0), Error);
  EXPECT_THROW(pin_team(-1, 1), Error);
}

}  // namespace
}  // namespace trireme::test_cpu
