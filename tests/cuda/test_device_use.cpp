// Use of the emulated GPU: loss chunks, rows in a norm's backward, times of calls.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "engine/device/launch_times.h"
#include "engine/ops/gemm/gemm.h"
#include "engine/ops/norm/norm.h"
#include "engine/ops/rows/elementwise.h"
#include "engine/ops/rows/transfer.h"
#include "parallel/comm/device/device_environment.h"
#include "tests/emulator/emulator.h"
#include "tests/serving/tiny_model.h"
#include "transformer/model/model.h"

namespace trireme::test {
namespace {

// Qwen2.5's vocabulary and a micro-batch of 16 sequences of 1,024 tokens.
TEST(LossChunks, AreLargeWholeTilesOnAGpu) {
  constexpr int64_t kTokens = 16384, kVocabulary = 151936;
  EXPECT_EQ(loss_chunk_rows(kTokens, kVocabulary, false), 219);
  EXPECT_EQ(loss_chunk_rows(kTokens, kVocabulary, true), 2048);
  EXPECT_EQ(loss_chunk_rows(kTokens, kVocabulary / 8, true), 4096);
  EXPECT_EQ(loss_chunk_rows(kTokens, 32000, true), 4096);
  EXPECT_EQ(loss_chunk_rows(2100, kVocabulary, true), 2100);
  EXPECT_EQ(loss_chunk_rows(2200, kVocabulary, true), 1152);  // two chunks of 1,100, in whole tiles
  EXPECT_EQ(loss_chunk_rows(7, kVocabulary, true), 7);
}

TEST(LossChunks, AFewHundredTokensAreOneOnAGpu) {
  emulator::reset();
  const auto gpu = cuda::open(0);
  ModelConfig config = tiny_model(ModelFamily::kLlama);
  config.vocab_size = 120000;
  config.hidden_size = 8;
  config.num_layers = 1;
  constexpr int64_t kTokens = 300;
  ASSERT_LT(loss_chunk_rows(kTokens, config.vocab_size, false), kTokens);
  Ctx ctx(1, "test", gpu.get());
  const Model model(config, DType::kF32);
  ParameterStore store(model.parameters(), DType::kF32);
  store.allocate(ctx, false);
  store.initialize(ctx, 5);
  const std::vector<int32_t> targets(kTokens, 11);
  const Buffer x("x", kTokens * config.hidden_size * 4, Memory::kDevice);
  const Buffer there("targets", kTokens * 4, Memory::kDevice), sum("sum", 8, Memory::kDevice);
  const Buffer scale("scale", 8, Memory::kDevice);
  cuda::fill_bytes(*gpu, gpu->main, scale.data(), 0, 8);
  cuda::fill_bytes(*gpu, gpu->main, x.data(), 0x3c, x.bytes());
  cuda::fill_bytes(*gpu, gpu->main, sum.data(), 0, 8);
  cuda::upload(*gpu, there.data(), targets.data(), there.bytes());
  Tokens tokens;
  tokens.count = kTokens;
  tokens.targets = there.tensor(DType::kI32, {kTokens});
  Pass pass{ctx, store, tokens};
  Activation y = ctx.allocate("y", DType::kF32, {kTokens, config.hidden_size});
  transfer(ctx, y, x.tensor(DType::kF32, {kTokens, config.hidden_size}));
  Loss to;
  to.sum = sum.tensor(DType::kF64, {1});
  to.scale = scale.tensor(DType::kF64, {1});
  model.loss(pass, std::move(y), to);
  double loss = 0;
  cuda::download(*gpu, &loss, sum.data(), 8);
  EXPECT_NEAR(loss / kTokens, std::log(120000.0), 3);
  EXPECT_EQ(emulator::counters().launches.at("cross_entropy"), 1);
}

// Backward of a norm with the width of Qwen2.5 0.5B: a thread block handles one row at a time, and
// four of its warps have work.
TEST(NormBackward, HasEightRowsInFlightOnAMultiprocessor) {
  emulator::reset();
  const auto gpu = cuda::open(0);
  Ctx ctx(1, "test", gpu.get());
  const int64_t rows = 16 * gpu->info.multiprocessors, columns = 896;
  const auto make = [&](DType dtype, const Shape& shape) {
    Activation t = ctx.allocate("operand", dtype, shape);
    fill_zero(ctx, t);
    return t;
  };
  const Activation dy = make(DType::kBF16, {rows, columns}),
                   h = make(DType::kBF16, {rows, columns});
  const Activation dx = make(DType::kBF16, {rows, columns}), w = make(DType::kBF16, {columns});
  const Activation rstd = make(DType::kF32, {rows}), dw = make(DType::kF32, {columns});
  cuda::synchronize(*gpu, gpu->main);
  const int64_t before = emulator::counters().blocks;
  rmsnorm_backward(ctx, dx, dw, dy, {}, h, w, rstd, false);
  cuda::synchronize(*gpu, gpu->main);
  EXPECT_EQ(emulator::counters().blocks - before,
            8 * gpu->info.multiprocessors + columns / 32);  // and the sums over blocks
}

// Time between two events for each call, by name.
TEST(LaunchTimes, AreOfEachCallByName) {
  emulator::reset();
  const auto gpu = cuda::open(0);
  Ctx ctx(1, "test", gpu.get());
  const Activation x = ctx.allocate("x", DType::kF32, {8, 8});
  fill_zero(ctx, x);
  cuda::start_launch_times(*gpu);
  add(ctx, x, x, x);
  add(ctx, x, x, x);
  const Activation y = ctx.allocate("y", DType::kF32, {8, 8});
  linear_forward(ctx, y, x, x, {});
  const std::vector<cuda::LaunchTime> times = cuda::take_launch_times(*gpu);
  ASSERT_EQ(times.size(), 2u);
  const auto& sums = times[times[0].name == "add" ? 0 : 1];
  const auto& product = times[times[0].name == "add" ? 1 : 0];
  EXPECT_EQ(sums.calls, 2);
  EXPECT_EQ(product.calls, 1);
  EXPECT_EQ(product.name, "product of float32 8 x 8 x 8");
  EXPECT_GE(times[0].seconds, times[1].seconds);
  EXPECT_THROW(cuda::take_launch_times(*gpu), Error);
}

// A single rank waits for no other rank and need not load kernels that it never launches.
TEST(DeviceEnvironment, LoadsAllKernelsForSeveralRanksOnly) {
  unsetenv("CUDA_MODULE_LOADING");
  set_device_environment(1);
  EXPECT_EQ(std::getenv("CUDA_MODULE_LOADING"), nullptr);
  EXPECT_STREQ(std::getenv("CUDA_DEVICE_MAX_CONNECTIONS"), "32");
  set_device_environment(2);
  EXPECT_STREQ(std::getenv("CUDA_MODULE_LOADING"), "EAGER");
}

}  // namespace
}  // namespace trireme::test
