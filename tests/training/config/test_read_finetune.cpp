// Defaults of fine-tuning configurations, and third-party spellings of their keys.
#include <gtest/gtest.h>

#include "tests/training/config/small_run.h"

namespace trireme::test_read_finetune {
using test::joined;
using test::problem;
using test::read;

namespace {

// Defaults of fine-tuning are milder than those of training from scratch.
TEST(FinetuneConfig, HasDefaultsOfItsOwn) {
  const std::vector<std::string> tune{"finetune.train_file=a.jsonl", "data.data_path=null",
                                      "data.tokenizer=byte", "checkpoint.load=base"};
  const auto with = [&](const std::vector<std::string>& more) { return read(joined(tune, more)); };
  const RunConfig scratch = read({});
  EXPECT_EQ(scratch.optimizer.lr, 3e-4);
  EXPECT_EQ(scratch.optimizer.weight_decay, 0.1);
  EXPECT_EQ(scratch.scheduler.warmup_steps, 0);
  const RunConfig sft = with({});
  EXPECT_EQ(sft.optimizer.lr, 2e-5);
  EXPECT_EQ(sft.optimizer.weight_decay, 0);
  EXPECT_EQ(sft.scheduler.warmup_steps, 3);  // of 100
  const Json resolved = run_config_to_json(sft);
  EXPECT_EQ(resolved["optimizer"]["params"]["lr"], 2e-5);
  EXPECT_EQ(resolved["scheduler"]["params"]["warmup_steps"], 3);
  EXPECT_EQ(with({"finetune.lora.rank=4"}).optimizer.lr, 2e-4);
  EXPECT_EQ(with({"finetune.method=dpo"}).optimizer.lr, 1e-6);
  EXPECT_EQ(with({"finetune.method=dpo", "finetune.lora.rank=4"}).optimizer.lr, 1e-5);
  EXPECT_EQ(with({"train_steps=1"}).scheduler.warmup_steps, 0);
  EXPECT_EQ(with({"scheduler.type=WSD", "scheduler.params.decay_steps=99"}).scheduler.warmup_steps,
            1);
  EXPECT_EQ(with({"scheduler.type=WarmupDecayLR", "scheduler.params.warmup_type=linear"})
                .scheduler.warmup_steps,
            3);
  const RunConfig configured = with({"lr=1e-3", "weight_decay=0.2", "warmup_steps=0"});
  EXPECT_EQ(configured.optimizer.lr, 1e-3);
  EXPECT_EQ(configured.optimizer.weight_decay, 0.2);
  EXPECT_EQ(configured.scheduler.warmup_steps, 0);
}

TEST(FinetuneConfig, WordsOfTrl) {
  EXPECT_EQ(read({"warmup_ratio=0.055"}).scheduler.warmup_steps, 6);
  EXPECT_NE(problem({"warmup_ratio=0.1", "warmup_steps=3"}).find("keep one"), std::string::npos);
  // As in HuggingFace's files, where the unused one is 0.
  EXPECT_EQ(read({"warmup_ratio=0.055", "warmup_steps=0"}).scheduler.warmup_steps, 6);
  EXPECT_EQ(read({"warmup_ratio=0", "warmup_steps=4"}).scheduler.warmup_steps, 4);
  const RunConfig config = read(
      {"max_length=32", "lr_scheduler_type=constant_with_warmup", "model_name_or_path=some/base"});
  EXPECT_EQ(config.sequence_length, 32);
  EXPECT_EQ(config.scheduler.style, DecayStyle::kConstant);
  EXPECT_EQ(config.checkpoint.load, "some/base");
}

TEST(FinetuneConfig, AdaptersAreForNamesOrAnExpression) {
  const auto with = [](const std::string& targets) {
    return read({"finetune.train_file=a.jsonl", "data.data_path=null", "data.tokenizer=byte",
                 "checkpoint.load=base", "finetune.lora.rank=4",
                 "finetune.lora.target_modules=" + targets});
  };
  EXPECT_EQ(with("q_proj").finetune.lora.targets, std::vector<std::string>{"q_proj"});
  const RunConfig ends = with(R"(["self_attn.q_proj"])");
  EXPECT_EQ(ends.finetune.lora.targets, std::vector<std::string>{"self_attn.q_proj"});
  const RunConfig expression = with(R"(".*\\.[qv]_proj")");
  EXPECT_EQ(expression.finetune.lora.pattern, R"(.*\.[qv]_proj)");
  EXPECT_TRUE(expression.finetune.lora.targets.empty());
  for (const RunConfig& config : {ends, expression})
    EXPECT_EQ(read_run_config(run_config_to_json(config), 1).finetune.lora, config.finetune.lora);
  EXPECT_THROW(with(R"([".*[qv]_proj"])"), InputError);  // a list must contain names
  EXPECT_THROW(with(".*nothing"), InputError);
}

}  // namespace
}  // namespace trireme::test_read_finetune
