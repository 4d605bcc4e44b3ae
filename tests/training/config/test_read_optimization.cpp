// Keys of a run's optimizer and of its learning rate.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "engine/core/error.h"
#include "optim/optimizer.h"
#include "tests/training/config/small_run.h"
#include "training/config/run_config.h"

namespace trireme::test_read_optimization {
using test::problem;
using test::read;

namespace {

TEST(RunConfig, SchedulerChecks) {
  EXPECT_EQ(problem({"scheduler.params.warmup_steps=101"}),
            "scheduler.params.warmup_steps: 101 is more than train_steps 100");
  EXPECT_EQ(problem({"min_lr=1"}), "min_lr: 1 is more than optimizer.params.lr 3e-04");
  EXPECT_EQ(problem({"lr_warmup_iters=20", "lr_decay_iters=10"}),
            "lr_decay_iters: the decay ends at step 10, before the end of the warm-up at 20");
  EXPECT_EQ(problem({"scheduler.type=WSD", "lr_warmup_iters=60", "lr_wsd_decay_iters=50"}),
            "lr_wsd_decay_iters: warm-up 60 and decay 50 together are more than train_steps 100");
  EXPECT_EQ(problem({"scheduler.type=WSD", "lr_decay_iters=50"}),
            "lr_decay_iters: is the end of the whole schedule in Megatron; with WSD give "
            "lr_wsd_decay_iters, the length of the decay");
  EXPECT_EQ(problem({"scheduler.params.decay_style=cosine"}),
            "scheduler.params.decay_style: needs scheduler.type WSD, got cosine");
  EXPECT_EQ(read({"scheduler.type=wsd"}).scheduler.decay_steps, 10);
  EXPECT_EQ(read({"scheduler.type=WSD", "warmup_steps=95"}).scheduler.decay_steps, 5);
  EXPECT_EQ(
      problem({"scheduler.type=WSD", "scheduler.params.warmup_steps=100"}),
      "scheduler.params.warmup_steps: 100 leaves no step of train_steps 100 for the decay of WSD");
  EXPECT_EQ(read({"lr_decay_style=inverse-square-root"}).scheduler.style, DecayStyle::kInverseSqrt);
  EXPECT_EQ(read({"scheduler.type=WSD", "lr_wsd_decay_style=minus_sqrt"}).scheduler.wsd_decay,
            WsdDecay::kMinusSqrt);
}

TEST(RunConfig, DeepSpeedSchedules) {
  const std::vector<std::string> linear = {
      "scheduler.type=WarmupDecayLR", "scheduler.params.warmup_type=linear",
      "scheduler.params.warmup_num_steps=20", "scheduler.params.total_num_steps=80",
      "scheduler.params.warmup_min_lr=0"};
  const RunConfig config = read(linear);
  EXPECT_EQ(config.scheduler.style, DecayStyle::kLinear);
  EXPECT_EQ(config.scheduler.warmup_steps, 20);
  EXPECT_EQ(config.scheduler.decay_steps, 80);
  const RunConfig by_logarithm = read({"scheduler.type=WarmupLR", "warmup_steps=4"});
  EXPECT_TRUE(by_logarithm.scheduler.log_warmup);
  EXPECT_EQ(by_logarithm.notes,
            std::vector<std::string>{
                "scheduler.type: WarmupLR has a logarithmic warm-up, as in DeepSpeed; "
                "scheduler.params.warmup_type \"linear\" makes it linear"});
  EXPECT_FALSE(config.scheduler.log_warmup);
  EXPECT_TRUE(read({"scheduler.params.warmup_type=log"}).scheduler.log_warmup);
  EXPECT_EQ(problem({"scheduler.params.warmup_max_lr=0.5"}),
            "scheduler.params.warmup_max_lr: 0.5 differs from optimizer.params.lr 3e-04: both are "
            "the rate after warm-up");
  EXPECT_EQ(problem({"scheduler.params.warmup_max_lr=3e-4"}), "");
  const RunConfig cosine =
      read({"scheduler.type=WarmupCosineLR", "lr=0.01", "warmup_steps=5",
            "scheduler.params.warmup_type=linear", "scheduler.params.cos_min_ratio=0.1"});
  EXPECT_DOUBLE_EQ(cosine.scheduler.min_lr, 0.001);
  EXPECT_FALSE(read({}).scheduler.deepspeed);
  for (const RunConfig* c : {&config, &by_logarithm, &cosine}) {
    const Json resolved = run_config_to_json(*c);
    EXPECT_TRUE(resolved["scheduler"]["type"].get<std::string>().starts_with("Warmup"));
    const SchedulerConfig again = resolved_run_config(resolved).scheduler;
    EXPECT_TRUE(again.deepspeed);
    EXPECT_EQ(again.style, c->scheduler.style);
    EXPECT_EQ(run_config_to_json(resolved_run_config(resolved)), resolved);
  }
  // DeepSpeed's default is 1000 warm-up steps.
  EXPECT_EQ(
      read({"scheduler.type=WarmupLR", "scheduler.params.warmup_type=linear", "train_steps=5000"})
          .scheduler.warmup_steps,
      1000);
}

TEST(RunConfig, AdamIsSaidToDifferFromDeepSpeeds) {
  const RunConfig plain = read({"optimizer.type=Adam"});
  EXPECT_STREQ(plain.optimizer.rule->name(), "Adam");
  ASSERT_EQ(plain.notes.size(), 1u);
  EXPECT_TRUE(
      plain.notes[0].starts_with("optimizer.type: Adam adds the weight decay to the gradient"));
  const RunConfig decoupled = read({"optimizer.type=adam", "optimizer.params.adam_w_mode=true"});
  EXPECT_STREQ(decoupled.optimizer.rule->name(), "AdamW");
  EXPECT_TRUE(decoupled.notes.empty());
}

TEST(RunConfig, LionHasBetasOfItsOwnAndNoMore) {
  const Json resolved = run_config_to_json(read({"optimizer.type=lion"}));
  EXPECT_EQ(resolved["optimizer"].dump(),
            R"({"type":"Lion","params":{"lr":0.0003,"betas":[0.9,0.99],"weight_decay":0.1},)"
            R"("state_dtype":"fp32","master_weights":true})");
  const auto betas = [](const std::vector<std::string>& assignments) {
    return run_config_to_json(read(assignments))["optimizer"]["params"]["betas"];
  };
  EXPECT_EQ(betas({"optimizer.type=Lion", "optimizer.params.betas=[0.95,0.98]"}),
            Json::array({0.95, 0.98}));
  EXPECT_EQ(betas({"optimizer.type=Lion", "adam_beta1=0.8"}), Json::array({0.8, 0.99}));
  EXPECT_EQ(betas({"optimizer.type=AdamW"}), Json::array({0.9, 0.95}));
  EXPECT_EQ(problem({"optimizer.type=Lion", "optimizer.params.eps=1e-6"}),
            "optimizer.params.eps: needs optimizer.type AdamW, Adam or OneBitAdam, got Lion");
  EXPECT_EQ(problem({"optimizer.type=Lion", "sgd_momentum=0.9"}),
            "sgd_momentum: needs optimizer.type SGD, got Lion; see optimizer.params.betas");
  EXPECT_EQ(read({"optimizer.type=Lion", "optimizer.params.lr=2"}).notes.size(), 1u);
}

}  // namespace
}  // namespace trireme::test_read_optimization
