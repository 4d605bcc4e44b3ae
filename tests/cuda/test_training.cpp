// Training on a GPU gives the same losses, gradients and parameters as on the CPU. In float64, so
// that only the order of the arithmetic may differ.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include "tests/layouts/float8_case.h"
#include "tests/layouts/layout_run.h"

namespace trireme::test {
namespace {

struct Named {
  const char* name;
  LayoutCase layout;
};

void PrintTo(const Named& c, std::ostream* out) { *out << c.name; }

class TrainingOnGpu : public testing::TestWithParam<Named> {};

TEST_P(TrainingOnGpu, EqualsTheCpu) {
  const LayoutCase& c = GetParam().layout;
  LayoutRunOptions on_gpu;
  on_gpu.gpu = true;
  RunConfig config = config_of(c);
  config.train_steps = 2;
  const LayoutResult want = run_training(config, c.packed, {});
  const LayoutResult got = run_training(config, c.packed, on_gpu);
  EXPECT_EQ(layout_difference(got, want, c.dtype), "");
}

std::vector<Named> single_rank_cases() {
  LayoutCase llama, gpt2, packed, recompute, mixtral, deepseek, qwen, mistral, qwen3, smollm3,
      granite, olmo2, glm4, bf16;
  gpt2.llama = false;
  packed.packed = packed.dropout = true;
  recompute.recompute = Recompute::kFull;
  mixtral.experts = "mixtral";
  deepseek.experts = "deepseek";
  qwen.experts = "qwen2_moe";
  mistral.variant = "mistral";
  qwen3.variant = "qwen3";
  smollm3.variant = "smollm3";
  granite.variant = "granite";
  olmo2.variant = "olmo2";
  glm4.variant = "glm4";
  bf16.dtype = DType::kBF16;
  LayoutCase gpt2_dropout = gpt2;
  gpt2_dropout.dropout = true;
  return {{"llama", llama},       {"gpt2", gpt2},           {"gpt2_dropout", gpt2_dropout},
          {"packed", packed},     {"recompute", recompute}, {"mixtral", mixtral},
          {"deepseek", deepseek}, {"qwen2_moe", qwen},      {"bfloat16", bf16},
          {"mistral", mistral},   {"qwen3", qwen3},         {"smollm3", smollm3},
          {"granite", granite},   {"olmo2", olmo2},         {"glm4", glm4}};
}

// Every dimension of parallelism, alone and combined. NCCL needs a GPU for each rank; with staged
// transfers ranks share one.
std::vector<Named> parallel_cases() {
  LayoutCase tp, pp, cp, windows, ulysses, dp, zero1, zero2, zero3, ep, all;
  tp.sizes.tp = 2;
  tp.sizes.sequence_parallel = true;  // on a GPU with overlapping exchanges by default
  LayoutCase tp_plain = tp;
  tp_plain.sizes.tp_comm_overlap = Overlap::kOff;
  pp.sizes.pp = 2;
  pp.schedule = "zb_h1";
  cp.sizes.cp = 2;
  cp.packed = true;
  windows = cp;
  windows.variant = "mistral";
  ulysses.sizes.cp = 2;
  ulysses.sizes.cp_ulysses = 2;
  ulysses.variant = "qwen3";
  dp.sizes.dp = 2;
  dp.llama = false;
  zero1 = zero2 = zero3 = dp;
  zero1.zero = 1;
  zero2.zero = 2;
  zero3.zero = 3;
  ep.sizes.dp = 2;
  ep.sizes.ep = 2;
  ep.experts = "qwen2_moe";
  all.sizes.pp = all.sizes.tp = 2;
  all.schedule = "1f1b";
  all.recompute = Recompute::kSelective;
  return {{"tp2_sp", tp},   {"tp2_plain", tp_plain}, {"pp2", pp},
          {"cp2_ring", cp}, {"cp2_heads", ulysses},  {"dp2", dp},
          {"zero1", zero1}, {"zero2", zero2},        {"zero3", zero3},
          {"ep2", ep},      {"tp2_pp2", all},        {"cp2_windows", windows}};
}

class RanksOnGpus : public TrainingOnGpu {};

TEST_P(RanksOnGpus, EqualOneCpu) {
  const LayoutCase& c = GetParam().layout;
  RunConfig config = config_of(c), alone = config_of(reference_of(c));
  config.train_steps = alone.train_steps = 2;
  const LayoutResult want = run_training(alone, c.packed, {});
  for (const bool nccl : {true, false}) {
    emulator::set_devices(nccl ? c.ranks() : 1);
    LayoutRunOptions on_gpu;
    on_gpu.gpu = true;
    on_gpu.backend = nccl ? DeviceBackend::kNccl : DeviceBackend::kStaged;
    const LayoutResult got = run_training(config, c.packed, on_gpu);
    EXPECT_EQ(layout_difference(got, want, c.dtype), "") << (nccl ? "nccl" : "staged");
  }
  emulator::set_devices(1);
}

// Adapters, with and without magnitudes, on a frozen model.
TEST(AdaptersOnGpus, EqualOneCpu) {
  for (const auto& [dora, tp] : {std::pair{false, 1}, std::pair{true, 2}}) {
    RunConfig alone = config_of(LayoutCase());
    alone.finetune.lora = {
        .rank = 3, .alpha = 8, .dropout = 0.2, .dora = dora, .targets = {"all-linear"}};
    alone.model.num_layers = 2;
    alone.optimizer.lr = 0.05;
    alone.train_steps = 2;
    RunConfig config = alone;
    config.parallel.tp = tp;
    config.parallel.sequence_parallel = tp > 1;
    emulator::set_devices(tp);
    LayoutRunOptions on_gpu;
    on_gpu.gpu = true;
    on_gpu.backend = tp > 1 ? DeviceBackend::kNccl : DeviceBackend::kAuto;
    EXPECT_EQ(layout_difference(run_training(config, false, on_gpu), run_training(alone, false, {}),
                                DType::kF64),
              "")
        << dora << " " << tp;
  }
  emulator::set_devices(1);
}

// 4-bit weights under adapters are unpacked on the GPU, also in recorded work.
TEST(Nf4BaseOnGpu, EqualsTheCpu) {
  LayoutCase c;
  RunConfig config = config_of(c);
  config.model.hidden_size = 64;
  config.model.intermediate_size = 128;
  config.model.head_dim = 16;
  config.model.num_layers = 2;
  config.gradient_accumulation_steps = 4;
  config.train_batch_size = 4;
  config.train_steps = 3;
  config.optimizer.lr = 0.05;
  config.finetune.lora = {.rank = 3, .alpha = 8, .targets = {"all-linear"}};
  LayoutRunOptions on_gpu;
  on_gpu.gpu = true;
  for (const bool doubled : {false, true}) {
    config.finetune.base_quantization = {true, doubled};
    const LayoutResult want = run_training(config, false, {});
    const int64_t before = emulator::counters().graph_launches;
    EXPECT_EQ(layout_difference(run_training(config, false, on_gpu), want, c.dtype), "");
    EXPECT_GE(emulator::counters().graph_launches - before, 4);
    RunConfig parallel = config;
    parallel.parallel.tp = 2;
    emulator::set_devices(2);
    LayoutRunOptions nccl = on_gpu;
    nccl.backend = DeviceBackend::kNccl;
    EXPECT_EQ(layout_difference(run_training(parallel, false, nccl), want, c.dtype), "");
    emulator::set_devices(1);
  }
}

constexpr Float8Recipe kRecipes[] = {Float8Recipe::kDelayed, Float8Recipe::kTensorwise,
                                     Float8Recipe::kBlockwise};

TEST(TrainingInFloat8, EqualsTheCpu) {
  for (const Float8Recipe recipe : kRecipes)
    for (const int tp : {1, 2}) {
      if (recipe == Float8Recipe::kBlockwise && tp > 1) continue;  // other quantization groups
      const RunConfig alone = float8_config(recipe, DType::kF64);
      RunConfig config = alone;
      config.parallel.tp = tp;
      emulator::set_devices(tp);
      LayoutRunOptions on_gpu;
      on_gpu.gpu = true;
      on_gpu.backend = tp > 1 ? DeviceBackend::kNccl : DeviceBackend::kAuto;
      EXPECT_EQ(layout_difference(run_training(config, false, on_gpu),
                                  run_training(alone, false, {}), DType::kF64),
                "");
    }
  emulator::set_devices(1);
}

// FP8 runs use the library's FP8 products: much closer to the CPU than training without FP8.
TEST(TrainingInFloat8, MultipliesCodes) {
  for (const Float8Recipe recipe : kRecipes) {
    RunConfig config = float8_config(recipe, DType::kF32);
    config.train_steps = 1;
    LayoutRunOptions on_gpu;
    on_gpu.gpu = true;
    const LayoutResult got = run_training(config, false, on_gpu),
                       want = run_training(config, false, {});
    config.float8.enabled = false;
    const LayoutResult without = run_training(config, false, {});
    EXPECT_LE(first_gradient_error(got, want), first_gradient_error(without, want) / 2);
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, RanksOnGpus, testing::ValuesIn(parallel_cases()),
                         [](const auto& one) { return std::string(one.param.name); });

INSTANTIATE_TEST_SUITE_P(OneRank, TrainingOnGpu, testing::ValuesIn(single_rank_cases()),
                         [](const auto& one) { return std::string(one.param.name); });

}  // namespace
}  // namespace trireme::test
