#include <gtest/gtest.h>

#include "engine/config/parse.h"
#include "tests/training/config/deepspeed/deepspeed_case.h"
#include "training/config/deepspeed/file.h"
#include "training/config/run_config.h"

namespace trireme::test_file {
namespace {

using test::betas_of;
using test::notes_say;
using test::shipped_file;
using test::with_deepspeed;

const std::vector<std::string> kBatch = {"train_batch_size=8", "micro_batch_size=2"};

TEST(DeepSpeedFiles, StageTwo) {
  const RunConfig config = with_deepspeed(parse_json_file(shipped_file("zero2")), kBatch, 2);
  EXPECT_EQ(config.zero.stage, 2);
  EXPECT_FALSE(config.comm.overlap);
  EXPECT_EQ(config.comm.bucket_bytes, int64_t{4} * 500'000'000);
  EXPECT_EQ(config.gradient_clipping, 1);
  EXPECT_EQ(config.dtype, DType::kF32);
  EXPECT_EQ(config.gradient_accumulation_steps, 2);
  ASSERT_EQ(config.notes.size(), 2U);  // one for each reason
  EXPECT_EQ(config.notes[1],
            "deepspeed.zero_optimization.allgather_partitions, "
            "deepspeed.zero_optimization.allgather_bucket_size, "
            "deepspeed.zero_optimization.reduce_scatter, "
            "deepspeed.zero_optimization.contiguous_gradients, "
            "deepspeed.zero_optimization.round_robin_gradients: have no effect here: sharded "
            "tensors are gathered and reduced one transformer block at a time");
}

TEST(DeepSpeedFiles, StageThree) {
  std::vector<std::string> run = kBatch;
  run.insert(run.end(), {"bf16.enabled=true", "lr=0.002", "warmup_steps=10"});
  const RunConfig config = with_deepspeed(parse_json_file(shipped_file("zero3")), run, 2);
  EXPECT_EQ(config.zero.stage, 3);
  EXPECT_EQ(config.dtype, DType::kBF16);
  EXPECT_EQ(config.optimizer.lr, 0.002);
  EXPECT_EQ(betas_of(config).second, 0.95);
  EXPECT_EQ(config.scheduler.style, DecayStyle::kConstant);
  EXPECT_TRUE(config.scheduler.log_warmup);
  EXPECT_EQ(config.scheduler.warmup_steps, 10);
  EXPECT_EQ(config.logging.log_interval, 2000);
  // Without steps in the run, "auto" means its default, not DeepSpeed's 1000 for an absent key.
  EXPECT_EQ(with_deepspeed(parse_json_file(shipped_file("zero3")), kBatch).scheduler.warmup_steps,
            0);
}

TEST(DeepSpeedFiles, StageThreeWithOffload) {
  const RunConfig config =
      with_deepspeed(parse_json_file(shipped_file("zero3_offload")), {"train_batch_size=8"}, 2);
  EXPECT_EQ(config.zero.stage, 3);
  EXPECT_EQ(config.zero.offload_optimizer.device, OffloadDevice::kCpu);
  EXPECT_EQ(config.dtype, DType::kBF16);
  EXPECT_EQ(config.micro_batch_size, 2);
  EXPECT_EQ(config.gradient_clipping, 0.5);
  EXPECT_EQ(config.optimizer.lr, 0.002);
  EXPECT_EQ(betas_of(config).second, 0.999);
  EXPECT_EQ(config.optimizer.weight_decay, 0);
  EXPECT_EQ(config.scheduler.style, DecayStyle::kLinear);
  EXPECT_FALSE(config.scheduler.log_warmup);
  EXPECT_EQ(config.scheduler.warmup_steps, 2);
  EXPECT_EQ(config.scheduler.decay_steps, 100);
  EXPECT_TRUE(notes_say(config, "offload_param.device: has no effect: weights stay"));
}

TEST(DeepSpeedFiles, AutoWithMonitors) {
  const RunConfig config =
      with_deepspeed(parse_json_file(shipped_file("auto_monitors")), kBatch, 2);
  EXPECT_EQ(config.zero.stage, 1);
  EXPECT_STREQ(config.optimizer.rule->name(), "AdamW");
  EXPECT_TRUE(config.logging.tensorboard);
  EXPECT_TRUE(config.comm.overlap);
  EXPECT_EQ(config.scheduler.style, DecayStyle::kLinear);
  EXPECT_TRUE(notes_say(config,
                        "deepspeed.wandb, deepspeed.csv_monitor, deepspeed.monitor_config: have no "
                        "effect here"));
  EXPECT_FALSE(notes_say(config, "comet"));  // it requests nothing
}

TEST(DeepSpeedFiles, MegatronDeepSpeed) {
  const RunConfig config = with_deepspeed(parse_json_file(shipped_file("megatron_deepspeed")),
                                          {"train_batch_size=auto"}, 2);
  EXPECT_EQ(config.train_batch_size, 16);
  EXPECT_EQ(config.gradient_accumulation_steps, 4);
  EXPECT_EQ(config.zero.stage, 1);
  EXPECT_EQ(config.dtype, DType::kBF16);
  EXPECT_TRUE(notes_say(config, "deepspeed.prescale_gradients: has no effect here"));
}

// DeepSpeed's own default overrides the optimizer's rate there.
TEST(DeepSpeedFiles, WarmupDecayWithoutAPeakHasDeepSpeedsRate) {
  const RunConfig config = with_deepspeed(
      R"({"optimizer": {"type": "AdamW", "params": {"lr": 0.2}},
          "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_num_steps": 7, "warmup_type": "linear"}}})",
      kBatch);
  EXPECT_EQ(config.optimizer.lr, 0.001);
  EXPECT_TRUE(notes_say(config, "WarmupDecayLR without warmup_max_lr has the peak rate 0.001"));
}

}  // namespace
}  // namespace trireme::test_file
