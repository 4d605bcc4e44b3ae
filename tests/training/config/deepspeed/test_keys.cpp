// DeepSpeed files in the forms that fine-tuning frameworks ship, combined with a run's own keys.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "engine/core/error.h"
#include "optim/adamw.h"
#include "tests/support/scratch_directory.h"
#include "tests/support/source_folder.h"
#include "tests/training/config/deepspeed/deepspeed_case.h"
#include "tests/training/config/small_run.h"
#include "training/config/deepspeed/file.h"
#include "training/config/deepspeed/keys.h"
#include "training/config/run_config.h"

namespace trireme::test_keys {
namespace {

using test::betas_of;
using test::notes_say;
using test::shipped_file;
using test::with_deepspeed;

std::string problem_with(const char* deepspeed, const std::vector<std::string>& assignments = {}) {
  try {
    with_deepspeed(deepspeed, assignments);
  } catch (const InputError& e) {
    return std::string(e.what()).substr(15);  // after "configuration: "
  }
  return "";
}

TEST(DeepSpeed, AFileIsNamedRelativeToTheConfigurationOrTheCommand) {
  test::ScratchDirectory scratch;
  std::filesystem::create_directories(scratch.path() + "/configs");
  std::ofstream(scratch.path() + "/configs/ds.json") << R"({"zero_optimization": {"stage": 2}})";
  Json run = test::small();
  run["deepspeed"] = "ds.json";
  const std::string path = scratch.path() + "/configs/run.json";
  std::ofstream(path) << run.dump();
  EXPECT_EQ(load_run_config(path, {}, 1).zero.stage, 2);
  EXPECT_EQ(load_run_config(path, {"deepspeed.zero_optimization.stage=1"}, 1).zero.stage, 1);
  EXPECT_EQ(load_run_config(path, {"deepspeed_config=" + shipped_file("zero3")}, 1).zero.stage, 3);
  EXPECT_EQ(load_run_config(path, {"zero_stage=0"}, 1).zero.stage, 0);
  std::ofstream(scratch.path() + "/configs/ds.json") << R"({"zero_optimization": {"stage": 7}})";
  try {
    load_run_config(path, {}, 1);
    FAIL() << "there is no stage 7";
  } catch (const InputError& e) {
    EXPECT_EQ(e.what(), concat(path, " (deepspeed: ", scratch.path(),
                               "/configs/ds.json): deepspeed.zero_optimization.stage: must be at "
                               "least 0 and at most 3 or \"auto\", got 7"));
  }
}

TEST(DeepSpeed, AFileMayBeTheConfigurationWhereFlagsGiveTheRest) {
  test::ScratchDirectory scratch;
  const std::string model = scratch.path() + "/model.json";
  std::ofstream(model) << test::small()["model"].dump();
  const RunConfig config = load_run_config(shipped_file("auto_monitors"),
                                           {"model=" + model, "output_dir=run", "data_path=tokens",
                                            "train_steps=4", "micro_batch_size=2"},
                                           1);
  EXPECT_EQ(config.zero.stage, 1);
  EXPECT_STREQ(config.optimizer.rule->name(), "AdamW");
  EXPECT_EQ(config.train_batch_size, 2);
  try {
    load_run_config(shipped_file("zero2"), {}, 1);
    FAIL() << "there is no model";
  } catch (const InputError& e) {
    const std::string what = e.what();
    EXPECT_NE(what.find("zero2.json (a DeepSpeed configuration: give a run's keys by flags, or set "
                        "\"deepspeed\" of a run's configuration to this file)"),
              std::string::npos)
        << what;
    EXPECT_NE(what.find("\n  model: is required"), std::string::npos) << what;
  }
}

TEST(DeepSpeed, TheRunCountsBeforeTheFileAndConflictsAreNamed) {
  const RunConfig config =
      with_deepspeed(R"({"gradient_clipping": 0.5, "zero_optimization": {"stage": 3}})",
                     {"clip_grad=2", "zero_stage=3"});
  EXPECT_EQ(config.gradient_clipping, 2);
  EXPECT_EQ(config.notes, std::vector<std::string>{"clip_grad: 2 of the run overrides 0.5 of "
                                                   "deepspeed.gradient_clipping"});
  EXPECT_EQ(
      with_deepspeed(R"({"gradient_clipping": 0.5})", {"gradient_clipping=auto"}).gradient_clipping,
      0.5);
}

TEST(DeepSpeed, AnotherTypeOrPrecisionOfTheRunLeavesTheFilesOut) {
  const char* const sections =
      R"({"optimizer": {"type": "Adam", "params": {"lr": 0.1, "betas": [0.8, 0.9]}},
          "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 7, "warmup_max_lr": 0.2}},
          "fp16": {"enabled": true}})";
  const RunConfig sgd = with_deepspeed(
      sections, {"optimizer.type=SGD", "scheduler.type=cosine", "bf16.enabled=true"});
  EXPECT_STREQ(sgd.optimizer.rule->name(), "SGD");
  EXPECT_EQ(sgd.optimizer.lr, 3e-4);
  EXPECT_EQ(sgd.scheduler.warmup_steps, 0);
  EXPECT_EQ(sgd.dtype, DType::kBF16);
  EXPECT_EQ(sgd.notes.size(), 3U);
  const RunConfig theirs = with_deepspeed(sections);
  EXPECT_STREQ(theirs.optimizer.rule->name(), "AdamW");
  EXPECT_EQ(betas_of(theirs).first, 0.8);
  EXPECT_EQ(theirs.optimizer.lr, 0.2);  // set by DeepSpeed's scheduler
  EXPECT_TRUE(notes_say(theirs, "deepspeed.optimizer.params.lr: 0.1 is ignored"));
  EXPECT_EQ(theirs.scheduler.warmup_steps, 7);
  EXPECT_EQ(theirs.dtype, DType::kF16);
}

TEST(DeepSpeed, TheRunMayUseOtherWords) {
  const RunConfig config = with_deepspeed(
      R"({"optimizer": {"params": {"betas": [0.5, 0.6]}},
          "scheduler": {"params": {"warmup_num_steps": 50}}})",
      {"adam_beta2=0.9", "warmup_ratio=0.1"});
  EXPECT_EQ(betas_of(config).first, 0.5);  // from the file; the run does not set it
  EXPECT_EQ(betas_of(config).second, 0.9);
  EXPECT_EQ(config.scheduler.warmup_steps, 10);
  EXPECT_EQ(config.notes.size(), 2U);
}

TEST(DeepSpeed, OneBetaOfTheRunDoesNotBringBackASectionOfAnotherType) {
  const RunConfig config =
      with_deepspeed(R"({"optimizer": {"type": "AdamW", "params": {"betas": [0.5, 0.6]}}})",
                     {"optimizer.type=Adam", "adam_beta1=0.8"});
  EXPECT_EQ(betas_of(config).first, 0.8);
  EXPECT_EQ(betas_of(config).second, AdamW().betas.second);
}

TEST(DeepSpeed, Lion) {
  const RunConfig config = with_deepspeed(R"({"optimizer": {"type": "Lion", "params": {"lr": 1e-4,
      "betas": [0.95, 0.98], "weight_decay": 0.3}}, "zero_optimization": {"stage": 2}})");
  EXPECT_EQ(run_config_to_json(config)["optimizer"]["params"].dump(),
            R"({"lr":0.0001,"betas":[0.95,0.98],"weight_decay":0.3})");
  EXPECT_STREQ(config.optimizer.rule->name(), "Lion");
  EXPECT_TRUE(config.notes.empty());
}

TEST(DeepSpeed, WordsMeanWhatTheyMeanThere) {
  EXPECT_STREQ(
      with_deepspeed(R"({"optimizer": {"type": "Adam", "params": {"adam_w_mode": false}}})")
          .optimizer.rule->name(),
      "Adam");
  EXPECT_EQ(with_deepspeed(R"({"scheduler": {"type": "WarmupLR"}})", {"train_steps=5000"})
                .scheduler.warmup_steps,
            1000);
  EXPECT_EQ(with_deepspeed(R"({"tensor_parallel": {"autotp_size": 0}})").parallel.tp, 1);
  EXPECT_EQ(
      with_deepspeed(R"({"expert_parallel": {"enabled": false, "autoep_size": 4}})").parallel.ep,
      1);
  EXPECT_EQ(
      with_deepspeed(R"({"train_micro_batch_size_per_gpu": 5})", {"gradient_accumulation_steps=3"})
          .micro_batch_size,
      4);
  EXPECT_EQ(with_deepspeed(R"({"bf16": true})").dtype, DType::kBF16);
}

TEST(DeepSpeed, ProblemsAreNamedInTheFile) {
  EXPECT_EQ(problem_with(R"({"zero_optimisation": {"stage": 2}})"),
            "deepspeed.zero_optimisation: unknown key; did you mean \"zero_optimization\"?");
  EXPECT_EQ(problem_with(R"({"model": "x"})").substr(0, 28), "deepspeed.model: unknown key");
  EXPECT_EQ(problem_with(R"({"amp": {"enabled": true}})"),
            "deepspeed.amp: {\"enabled\":true} is refused: write bf16.enabled or fp16.enabled");
  EXPECT_EQ(problem_with(R"({"elasticity": {"enabled": true, "max_train_batch_size": 8}})"),
            "deepspeed.elasticity: {\"enabled\":true,\"max_train_batch_size\":8} is not available "
            "in this version (batch sizes that adapt to the number of ranks); only false is");
  EXPECT_EQ(problem_with(R"({"zero_optimization": {"offload_param": {"device": "nvme"}}})"),
            "deepspeed.zero_optimization.offload_param.device: \"nvme\" is not available in this "
            "version; use none, cpu");
  EXPECT_NE(problem_with(R"({"compression_training": {"sparse_pruning": {"shared_parameters":
                            {"enabled": true}}}})"),
            "");
  EXPECT_EQ(problem_with(R"({"expert_parallel": {"enabled": true}})"),
            "expert_parallel.enabled: true, but the model has no experts");
  EXPECT_EQ(
      problem_with("3"),
      "deepspeed: expected the path of a DeepSpeed configuration, or the object itself, got 3");
}

// HuggingFace's Trainer accepts "auto" for each of them.
TEST(DeepSpeed, EveryKeyMayBeAuto) {
  for (const Key& key : deepspeed_schema().keys()) {
    std::string text = "\"auto\"";
    for (std::string at = key.path; !at.empty(); at = parent_path(at))
      text = concat("{\"", leaf_name(at), "\": ", text, "}");
    EXPECT_EQ(problem_with(text.c_str()), "") << text;
    EXPECT_TRUE(with_deepspeed(text.c_str()).notes.empty()) << text;
  }
}

// The largest configuration in DeepSpeed's documentation has no unknown key.
TEST(DeepSpeed, EverySectionOfItsDocumentationIsKnown) {
  const std::vector<std::string> sections = {"train_batch_size",
                                             "train_micro_batch_size_per_gpu",
                                             "gradient_accumulation_steps",
                                             "managed_gradient_accumulation",
                                             "optimizer",
                                             "scheduler",
                                             "communication_data_type",
                                             "gradient_allreduce_op",
                                             "prescale_gradients",
                                             "gradient_predivide_factor",
                                             "sparse_gradients",
                                             "fp16",
                                             "bf16",
                                             "amp",
                                             "torch_autocast",
                                             "gradient_clipping",
                                             "zero_optimization",
                                             "tensor_parallel",
                                             "hybrid_engine",
                                             "expert_parallel",
                                             "aio",
                                             "zero_allow_untested_optimizer",
                                             "steps_per_print",
                                             "wall_clock_breakdown",
                                             "dump_state",
                                             "autotuning",
                                             "flops_profiler",
                                             "activation_checkpointing",
                                             "sparse_attention",
                                             "data_efficiency",
                                             "curriculum_learning",
                                             "tensorboard",
                                             "wandb",
                                             "comet",
                                             "csv_monitor",
                                             "elasticity",
                                             "comms_logger",
                                             "compression_training",
                                             "checkpoint",
                                             "compile",
                                             "data_types",
                                             "pipeline",
                                             "nebula",
                                             "eigenvalue",
                                             "progressive_layer_drop",
                                             "weight_quantization",
                                             "zenflow",
                                             "monitor_config",
                                             "comms_config",
                                             "memory_breakdown",
                                             "log_level",
                                             "timers"};
  for (const std::string& name : sections)
    EXPECT_TRUE(deepspeed_schema().find_any(name) != nullptr || deepspeed_schema().is_section(name))
        << name;
}

TEST(DeepSpeed, TheSameWordsMayStandInTheRunItself) {
  EXPECT_EQ(test::problem({"gradient_clipping=auto", "fp16.enabled=auto", "bf16.enabled=auto",
                           "zero_optimization.reduce_bucket_size=auto", "lr=auto",
                           "optimizer.params.betas=auto", "prescale_gradients=true"}),
            "");
  EXPECT_EQ(test::read({"gradient_clipping=auto"}).gradient_clipping, 1);
  EXPECT_EQ(test::problem({"tp=auto"}),
            "tp: must be an integer, got \"auto\"");  // no default to derive it from
}

TEST(DeepSpeed, ThePageIsUpToDate) {
  std::ifstream file(concat(test::source_folder(), "/docs/reference/deepspeed-keys.md"));
  const std::string page((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  EXPECT_TRUE(page == deepspeed_keys_page())
      << "run: build/release/trireme config deepspeed-keys > docs/reference/deepspeed-keys.md";
}

TEST(TorchTitan, DegreesOfSharding) {
  const RunConfig all = test::read({"parallelism.data_parallel_shard_degree=-1"}, 4);
  EXPECT_EQ(all.zero.stage, 3);
  EXPECT_EQ(all.parallel.dp, 4);
  EXPECT_EQ(test::read({"data_parallel_shard_degree=4", "data_parallel_replicate_degree=1"}, 4)
                .parallel.dp,
            4);
  EXPECT_EQ(test::read({"data_parallel_shard_degree=1", "data_parallel_replicate_degree=4"}, 4)
                .zero.stage,
            0);
  EXPECT_EQ(
      test::problem({"data_parallel_shard_degree=2", "data_parallel_replicate_degree=2"}, 4)
          .substr(0, 100),
      "data_parallel_shard_degree: 2 with data_parallel_replicate_degree 2 shards over a part "
      "of the data-p");
  EXPECT_EQ(test::problem({"data_parallel_shard_degree=2", "dp=4"}, 4),
            "data_parallel_shard_degree: 2 differs from dp 4");
  EXPECT_EQ(test::problem({"data_parallel_shard_degree=-1", "zero_stage=1"}, 2),
            "data_parallel_shard_degree: shards the weights, but zero_stage is 1");
}

TEST(DeepSpeed, QuantizedWeightsAreThoseOfZeroPlusPlus) {
  const char* const file =
      R"({"zero_optimization": {"stage": 3, "zero_quantized_weights": true,
          "zero_hpz_partition_size": 4, "zero_quantized_gradients": false}})";
  const RunConfig config = with_deepspeed(parse_json(file, "deepspeed"), {}, 4);
  EXPECT_TRUE(config.weight_compression.enabled);
  EXPECT_EQ(config.zero.copy_ranks, 4);
  EXPECT_NE(problem_with(file).find("4 must divide the 1 ranks with the same weights"),
            std::string::npos);
  const RunConfig exact =
      with_deepspeed(parse_json(file, "deepspeed"), {"compression.parameters.method=none"}, 4);
  EXPECT_FALSE(exact.weight_compression.enabled);
  EXPECT_TRUE(notes_say(exact, "zero_quantized_weights"));
  EXPECT_NE(problem_with(R"({"zero_optimization": {"stage": 3, "zero_quantized_gradients": true}})")
                .find("write compression.gradients"),
            std::string::npos);
}

}  // namespace
}  // namespace trireme::test_keys
