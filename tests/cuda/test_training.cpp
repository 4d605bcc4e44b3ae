// Training on a GPU is training: the same losses, gradients and parameters as on the CPU. In float64, so that
// nothing but the arithmetic's order may differ.
#include <gtest/gtest.h>

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
  LayoutCase llama, gpt2, packed, recompute, mixtral, deepseek, qwen, bf16;
  gpt2.llama = false;
  packed.packed = packed.dropout = true;
  recompute.recompute = Recompute::kFull;
  mixtral.experts = "mixtral";
  deepseek.experts = "deepseek";
  qwen.experts = "qwen2_moe";
  bf16.dtype = DType::kBF16;
  LayoutCase gpt2_dropout = gpt2;
  gpt2_dropout.dropout = true;
  return {{"llama", llama},       {"gpt2", gpt2},           {"gpt2_dropout", gpt2_dropout},
          {"packed", packed},     {"recompute", recompute}, {"mixtral", mixtral},
          {"deepseek", deepseek}, {"qwen2_moe", qwen},      {"bfloat16", bf16}};
}

INSTANTIATE_TEST_SUITE_P(OneRank, TrainingOnGpu, testing::ValuesIn(single_rank_cases()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace trireme::test
