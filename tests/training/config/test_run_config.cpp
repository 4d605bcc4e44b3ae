#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/config/override.h"
#include "engine/config/parse.h"
#include "engine/core/error.h"
#include "tests/support/scratch_directory.h"
#include "tests/training/config/config_changes.h"
#include "tests/training/config/small_run.h"
#include "training/config/run_config.h"

namespace trireme::test_run_config {
using test::changed;
using test::companions;
using test::joined;
using test::other_value;
using test::problem;
using test::read;
using test::refusal;
using test::small;

namespace {

TEST(RunConfig, DefaultsAreResolved) {
  const RunConfig config = read({}, 2);
  EXPECT_EQ(config.micro_batch_size, 6);
  EXPECT_EQ(config.gradient_accumulation_steps, 1);
  EXPECT_EQ(config.sequence_length, 64);
  EXPECT_EQ(config.scheduler.decay_steps, 100);
  EXPECT_EQ(config.checkpoint.save, "runs/test/checkpoints");
  EXPECT_EQ(config.data.split, "969,30,1");
  EXPECT_EQ(config.data.train.at(0).prefix, "data/test");
  EXPECT_EQ(config.comm.bucket_bytes, 25 << 20);
  EXPECT_EQ(config.dtype, DType::kF32);
}

TEST(RunConfig, BatchRuleInfersWhatIsLeftOut) {
  const auto sizes = [](const std::vector<std::string>& assignments, int world_size) {
    const RunConfig c = read(assignments, world_size);
    return std::vector<int64_t>{c.train_batch_size, c.micro_batch_size,
                                c.gradient_accumulation_steps};
  };
  using Sizes = std::vector<int64_t>;
  EXPECT_EQ(sizes({}, 1), (Sizes{12, 12, 1}));
  EXPECT_EQ(sizes({"train_micro_batch_size_per_gpu=2"}, 3), (Sizes{12, 2, 2}));
  EXPECT_EQ(sizes({"gradient_accumulation_steps=3"}, 2), (Sizes{12, 2, 3}));
  EXPECT_EQ(sizes({"train_batch_size=auto", "micro_batch_size=5"}, 2), (Sizes{10, 5, 1}));
  EXPECT_EQ(
      sizes({"train_batch_size=auto", "micro_batch_size=5", "gradient_accumulation_steps=2"}, 2),
      (Sizes{20, 5, 2}));
  EXPECT_EQ(sizes({"micro_batch_size=3", "gradient_accumulation_steps=2"}, 2), (Sizes{12, 3, 2}));
}

TEST(RunConfig, BatchRuleShowsTheNumbers) {
  EXPECT_EQ(
      problem({"micro_batch_size=3", "gradient_accumulation_steps=2"}, 4),
      "train_batch_size: 12 is not train_micro_batch_size_per_gpu 3 x gradient_accumulation_steps "
      "2 x 4 data-parallel ranks = 24; leave one of the three out, or write \"auto\"");
  EXPECT_EQ(
      problem({"micro_batch_size=5"}, 1),
      "train_batch_size: 12 is not divisible by train_micro_batch_size_per_gpu 5 x 1 data-parallel "
      "rank = 5");
  EXPECT_EQ(problem({}, 5),
            "train_batch_size: 12 is not divisible by gradient_accumulation_steps 1 "
            "x 5 data-parallel ranks = 5");
  EXPECT_EQ(problem({"train_batch_size=auto"}),
            "train_batch_size: is required, or train_micro_batch_size_per_gpu");
  EXPECT_EQ(problem({"train_batch_size=auto", "micro_batch_size=16777216",
                     "gradient_accumulation_steps=16777216"},
                    1 << 20),
            "train_batch_size: train_micro_batch_size_per_gpu 16777216 x "
            "gradient_accumulation_steps 16777216 x 1048576 data-parallel ranks is more than "
            "16777216 sequences");
}

TEST(RunConfig, CrossChecks) {
  EXPECT_EQ(problem({"sequence_length=65"}),
            "sequence_length: 65 is more than the model's max_position_embeddings 64");
  EXPECT_EQ(problem({"seq_length=65"}),
            "seq_length: 65 is more than the model's max_position_embeddings 64");
  EXPECT_EQ(problem({"bf16.enabled=true", "fp16.enabled=true"}),
            "bf16.enabled: is true together with fp16.enabled; choose one");
  EXPECT_EQ(problem({"optimizer.master_weights=false"}),
            "optimizer.master_weights: false is not supported with float32, which has no "
            "stochastic rounding of updates; supported: bfloat16");
  EXPECT_EQ(problem({"optimizer.master_weights=false", "bf16.enabled=true"}), "");
  EXPECT_EQ(problem({"optimizer.params.betas=[0.9, 1]"}),
            "optimizer.params.betas: expected two numbers in [0, 1) in float32, got [0.9,1]");
  EXPECT_EQ(problem({"optimizer.params.betas=[0.9]"}),
            "optimizer.params.betas: expected two numbers in [0, 1) in float32, got [0.9]");
  EXPECT_EQ(problem({"optimizer.params.betas=[0.9, 0.99999999]"}),
            "optimizer.params.betas: expected two numbers in [0, 1) in float32, got "
            "[0.9,0.99999999]");
  EXPECT_EQ(problem({"optimizer.params.lr=1e30", "optimizer.params.weight_decay=1e30"}),
            "optimizer.params.weight_decay: 1e+30 times optimizer.params.lr 1e+30 is infinity in "
            "float32");
  EXPECT_EQ(problem({"optimizer.params.betas=[0.9,0.9]", "adam_beta1=0.8"}),
            "adam_beta1: sets a part of optimizer.params.betas, which is set too; keep one");
  EXPECT_EQ(problem({"optimizer.params.momentum=0.9"}),
            "optimizer.params.momentum: needs optimizer.type SGD, got AdamW; see "
            "optimizer.params.betas");
  EXPECT_EQ(problem({"optimizer.type=SGD", "optimizer.params.betas=[0.9,0.9]"}),
            "optimizer.params.betas: needs optimizer.type AdamW, Adam, Lion or OneBitAdam, got "
            "SGD");
  EXPECT_EQ(problem({"optimizer.type=SGD", "optimizer.params.nesterov=true"}),
            "optimizer.params.nesterov: needs optimizer.type SGD and a momentum above 0");
  EXPECT_EQ(problem({"data.data_path=null"}),
            "data.data_path: is required (or data.train_data_path): prefix of the token file that "
            "`trireme data prepare` writes");
}

TEST(RunConfig, WhatCanBeMeantBySplitIsSaid) {
  const std::string both = problem({"data.train_data_path=t", "data.split=9,1"});
  EXPECT_NE(both.find("is set together with data.data_path; keep one"), std::string::npos) << both;
  EXPECT_EQ(both.find("not given"), std::string::npos) << both;
  EXPECT_EQ(problem({"data.data_path=null", "data.train_data_path=t", "data.split=9,1"}),
            "data.split: divides data.data_path and has no effect on data.train_data_path: leave "
            "one of the two out");
}

TEST(RunConfig, AScheduleThatDoesNotExistIsReportedWithTheOtherMistakes) {
  const std::string all = problem({"parallel.pipeline_schedule=2f2b", "train_batch_size=auto"});
  EXPECT_NE(all.find("\"2f2b\" is not supported; supported: gpipe"), std::string::npos) << all;
  EXPECT_NE(all.find("train_batch_size: is required"), std::string::npos) << all;
}

TEST(RunConfig, WhatChangesNothingOrTooMuchIsNoted) {
  const auto note = [](const std::vector<std::string>& assignments) {
    const RunConfig config = read(assignments);
    return config.notes.size() == 1 ? config.notes[0] : concat(config.notes.size(), " notes");
  };
  EXPECT_TRUE(
      note({"parallel.sequence_parallel=true"}).ends_with("tensor_model_parallel_size above 1"));
  EXPECT_TRUE(note({"optimizer.params.lr=1e5"})
                  .starts_with("optimizer.params.lr: 1e+05 is about the change of every weight"));
  EXPECT_TRUE(note({"cpu.threads_per_rank=4096"})
                  .starts_with("cpu.threads_per_rank: 4096 threads share the "));
  EXPECT_EQ(note({"optimizer.type=SGD", "optimizer.params.lr=2"}), "0 notes");
  EXPECT_EQ(
      note({"optimizer.params.lr=0.001", "optimizer.params.weight_decay=3e3"}),
      "optimizer.params.weight_decay: weight_decay x lr = 3 is above 1: each step changes the sign "
      "of the decayed weights");
  EXPECT_TRUE(note({"optimizer.type=SGD", "weight_decay=3e3", "optimizer.params.lr=0.001"})
                  .ends_with("the sign of the decayed weights"));
  // Adam adds weight decay to the gradient, unless DeepSpeed's adam_w_mode makes it AdamW.
  EXPECT_TRUE(note({"optimizer.type=Adam", "optimizer.params.weight_decay=3e4"})
                  .starts_with("optimizer.type: Adam adds the weight decay to the gradient"));
  EXPECT_TRUE(note({"optimizer.type=Adam", "optimizer.params.adam_w_mode=true",
                    "optimizer.params.weight_decay=3e4"})
                  .ends_with("the sign of the decayed weights"));
  EXPECT_EQ(
      note({"train_steps=100", "scheduler.params.warmup_steps=20",
            "scheduler.params.decay_steps=20"}),
      "scheduler.params.warmup_steps: the learning rate is 0 from step 21 to the last step 100, "
      "because the decay ends with the warm-up");
  EXPECT_EQ(note({"train_steps=100", "scheduler.params.warmup_steps=20",
                  "scheduler.params.decay_steps=25"}),
            "0 notes");
}

TEST(RunConfig, StepsHaveTheDigitsOfACheckpointsName) {
  EXPECT_EQ(problem({"train_steps=99999999"}), "");
  EXPECT_EQ(problem({"train_steps=100000000"}),
            "train_steps: must be at least 1 and at most 99999999 or \"auto\", got 100000000");
}

// A feature of other programs that is not implemented here is an error, never ignored; disabling it
// is not an error.
TEST(RunConfig, SecondCopiesOfWeights) {
  const std::string copies = "zero_optimization.zero_hpz_partition_size";
  const std::vector<std::string> sharded{copies + "=2", "zero_optimization.stage=3"};
  EXPECT_EQ(read(sharded, 4).zero.copy_ranks, 2);
  EXPECT_EQ(refusal({copies + "=2"}), copies + ": needs zero_optimization.stage 3, got 0");
  EXPECT_EQ(problem(sharded, 3), copies + ": 2 must divide the 3 ranks with the same weights");
  const std::vector<std::string> experts =
      joined(sharded, {"model.model_type=mixtral", "model.num_local_experts=4",
                       "model.num_experts_per_tok=2", "model.num_key_value_heads=2"});
  EXPECT_EQ(read(experts, 4).zero.copy_ranks, 2);
  EXPECT_EQ(problem(joined(experts, {"parallel.expert_model_parallel_size=2"}), 4),
            copies +
                ": 2 is not supported with divided experts, whose copies would be on several "
                "nodes; set parallel.expert_model_parallel_size and "
                "parallel.expert_tensor_parallel_size to 1, or zero_hpz_partition_size to 1");
}

TEST(RunConfig, WhatIsNotBuiltIsRefused) {
  const std::string not_here = " is not available in this version";
  for (const char* assignment :
       {"zero_optimization.mics_shard_size=2", "checkpoint.async_save=true",
        "optimizer.type=\"Lamb\"", "optimizer.type=\"Muon\"", "scheduler.type=\"OneCycle\"",
        "comm.backend=\"nccl\"", "optimizer.state_dtype=\"fp8\"", "elasticity={\"enabled\":true}",
        "sparse_gradients=true", "zero_optimization.offload_optimizer.ratio=0.5",
        "rampup_batch_size=\"1 1 1\"", "data_types.grad_accum_dtype=\"bf16\"",
        "optimizer.params.amsgrad=true"}) {
    const Override change = parse_override(assignment);
    const std::string message = problem({assignment});
    const std::string start = change.path + ": " + change.value + not_here;
    EXPECT_TRUE(message.starts_with(start)) << assignment << " -> " << message;
  }
  for (const char* assignment :
       {"tp=1", "sequence_parallel=false", "zero_optimization.stage=0", "fp8={\"enabled\":false}",
        "moe={}", "num_experts=1", "zero_optimization.offload_optimizer={\"device\":\"none\"}",
        "data_types.grad_accum_dtype=\"fp32\"", "amp=false", "prescale_gradients=false",
        "parallel.data_parallel_size=\"auto\""}) {
    EXPECT_EQ(problem({assignment}), "") << assignment;
  }
  EXPECT_EQ(problem({"moe={\"num_experts\":8}"}),
            "moe: {\"num_experts\":8} is refused: experts are described under \"model\", with "
            "HuggingFace's keys; parallel.expert_model_parallel_size divides them over ranks");
  EXPECT_EQ(problem({"num_layers=2"}),
            "num_layers: 2 is refused: the model is described under \"model\", with HuggingFace's "
            "keys");
  EXPECT_EQ(read({"wall_clock_breakdown=true"}).notes,
            std::vector<std::string>{"wall_clock_breakdown: has no effect here: times, rates and "
                                     "bytes of each step are in metrics.jsonl"});
}

TEST(RunConfig, ZeroInTheWordsOfOthers) {
  EXPECT_EQ(read({}).zero.stage, 0);
  EXPECT_EQ(read({"zero_stage=2"}).zero.stage, 2);
  EXPECT_EQ(read({"use_distributed_optimizer=true"}).zero.stage, 1);
  EXPECT_EQ(read({"data_parallel_sharding_strategy=optim_grads_params"}).zero.stage, 3);
  EXPECT_EQ(read({"data_parallel_sharding_strategy=optim_grads", "use_distributed_optimizer=true"})
                .zero.stage,
            2);
  EXPECT_EQ(trajectory_hash(read({"zero_stage=3"})), trajectory_hash(read({})));
  EXPECT_EQ(problem({"zero_stage=1", "data_parallel_sharding_strategy=optim_grads"}),
            "data_parallel_sharding_strategy: optim_grads means zero_optimization.stage 2, but "
            "zero_stage is 1");
  EXPECT_EQ(problem({"zero_optimization.stage=0", "use_distributed_optimizer=true"}),
            "use_distributed_optimizer: shards the optimizer state, but zero_optimization.stage "
            "disables sharding");
  EXPECT_EQ(problem({"zero_optimization.offload_optimizer.device=nvme"}),
            "zero_optimization.offload_optimizer.device: nvme needs "
            "zero_optimization.offload_optimizer.nvme_path, a folder on a disk");
  const OffloadConfig offload = read({"zero_optimization.offload_optimizer.device=nvme",
                                      "zero_optimization.offload_optimizer.nvme_path=/disk"})
                                    .zero.offload_optimizer;
  EXPECT_EQ(offload.device, OffloadDevice::kFile);
  EXPECT_EQ(offload.path, "/disk");
}

TEST(RunConfig, Layouts) {
  const RunConfig c = read({"tp=2", "sequence_parallel=true"}, 4);
  EXPECT_EQ(c.parallel.tp, 2);
  EXPECT_EQ(c.parallel.dp, 2);
  EXPECT_TRUE(c.parallel.sequence_parallel);
  EXPECT_EQ(c.train_batch_size, c.micro_batch_size * c.gradient_accumulation_steps * 2);
  EXPECT_EQ(run_config_to_json(resolved_run_config(run_config_to_json(c))), run_config_to_json(c));
  EXPECT_EQ(trajectory_hash(c), trajectory_hash(read({}, 1)));
  EXPECT_EQ(problem({"tp=2"}, 3),
            "tp: tp 2 x pp 1 x cp 1 = 2 does not divide the 3 ranks of the run");
  EXPECT_EQ(problem({"tp=3", "train_batch_size=12"}, 3),
            "tp: 3 does not divide the model's 4 attention heads: a rank holds whole heads");
  EXPECT_EQ(
      problem({"dp=3"}, 2),
      "parallel.tensor_model_parallel_size: the layout pp=1 x dp=3 x cp=1 x tp=1 needs 3 ranks "
      "but the run has 2; change the layout or start 3, or let the number of ranks follow: --set "
      "parallel.data_parallel_size=auto --set gradient_accumulation_steps=auto");
}

TEST(RunConfig, HostileSizesAreMistakesAndNotOverflows) {
  for (const std::vector<std::string>& sizes : std::vector<std::vector<std::string>>{
           {"parallel.expert_model_parallel_size=65536",
            "parallel.expert_tensor_parallel_size=65536"},
           {"parallel.data_parallel_size=1048576", "parallel.tensor_model_parallel_size=1048576",
            "parallel.context_parallel_size=1048576",
            "parallel.pipeline_model_parallel_size=1048576"},
           {"parallel.pipeline_model_parallel_size=1048576",
            "parallel.virtual_pipeline_stages=1048576"},
           {"train_batch_size=16777216", "train_micro_batch_size_per_gpu=16777216",
            "gradient_accumulation_steps=16777216", "parallel.data_parallel_size=1048576"}})
    EXPECT_NE(problem(sizes), "") << sizes.front();
  Json manifest = run_config_to_json(read({}));
  manifest["train_micro_batch_size_per_gpu"] = int64_t{1} << 40;
  manifest["gradient_accumulation_steps"] = int64_t{1} << 40;
  EXPECT_THROW(resolved_run_config(manifest), InputError);
}

TEST(RunConfig, AResolvedConfigurationNamesTheWayToOtherRanks) {
  Json resolved = run_config_to_json(read({}, 2));
  try {
    read_run_config(resolved, 1);
    FAIL() << "two ranks are fixed";
  } catch (const InputError& e) {
    const std::string what = e.what();
    EXPECT_NE(what.find("needs 2 ranks but the run has 1"), std::string::npos) << what;
    EXPECT_NE(what.find("--set parallel.data_parallel_size=auto --set "
                        "gradient_accumulation_steps=auto"),
              std::string::npos)
        << what;
  }
  ConfigReport report;
  for (const char* change :
       {"parallel.data_parallel_size=auto", "gradient_accumulation_steps=auto"})
    apply_override(run_schema(), parse_override(change), resolved, report);
  EXPECT_TRUE(report.ok());
  EXPECT_EQ(read_run_config(resolved, 1).gradient_accumulation_steps, 2);
}

TEST(RunConfig, ChoosingByTimeIsDeterministicWhereChoicesAreKept) {
  EXPECT_TRUE(read({"deterministic=false", "cuda.autotune=true"}).cuda_autotune);
  EXPECT_NE(problem({"cuda.autotune=true"}).find("set deterministic or cuda.autotune to false"),
            std::string::npos);
  const RunConfig keeps = read({"cuda.autotune=true", "cuda.gemm_algorithms=kept"});
  EXPECT_TRUE(keeps.deterministic);
  EXPECT_EQ(keeps.cuda_gemm_algorithms, "kept");
  EXPECT_NE(problem({"cuda.gemm_algorithms=kept"}).find("cuda.autotune"), std::string::npos);
}

TEST(RunConfig, ContextLayouts) {
  const RunConfig ring = read({"cp=4"}, 8);
  EXPECT_EQ(ring.parallel.cp, 4);
  EXPECT_EQ(ring.parallel.dp, 2);
  EXPECT_EQ(ring.parallel.cp_ulysses, 1);
  EXPECT_EQ(ring.parallel.cp_balance, ContextBalance::kZigzag);
  EXPECT_EQ(read({"cp=4", "cp_comm_type=a2a"}, 4).parallel.cp_ulysses, 4);
  const RunConfig both = read({"cp=4", "tp=2", "cp_comm_type=a2a+p2p"}, 8);
  EXPECT_EQ(both.parallel.cp_ulysses, 2);
  EXPECT_EQ(run_config_to_json(resolved_run_config(run_config_to_json(both))),
            run_config_to_json(both));
  EXPECT_EQ(trajectory_hash(both), trajectory_hash(read({}, 1)));
  EXPECT_EQ(
      problem({"cp=4", "tp=2", "cp_comm_type=a2a"}, 8),
      "cp_comm_type: \"a2a\" cannot distribute the 2 query heads of a tensor-parallel rank to 4 "
      "context-parallel ranks: use \"p2p\", or another parallel.context_parallel_size");
}

TEST(RunConfig, ModelProblemsCarryTheirPath) {
  EXPECT_EQ(problem({"model.hidden_size=66"}),
            "model.num_attention_heads: 4 does not divide hidden_size 66");
  EXPECT_EQ(problem({"model.hiden_size=64"}),
            "model.hiden_size: unknown key; did you mean \"hidden_size\"?");
  EXPECT_EQ(problem({"model=3"}), "model: must be an object, got 3");
}

TEST(RunConfig, Float8) {
  const Float8Config by_default = read({"fp8.enabled=true"}).float8;
  EXPECT_TRUE(by_default.enabled && by_default.hybrid);
  EXPECT_EQ(by_default.recipe, Float8Recipe::kDelayed);
  EXPECT_EQ(by_default.history, 16);
  EXPECT_EQ(read({"fp8.enabled=true", "fp8_recipe=current"}).float8.recipe,
            Float8Recipe::kTensorwise);
  EXPECT_EQ(read({"fp8.enabled=true", "fp8.amax_compute_algo=most_recent"}).float8.history, 1);
  EXPECT_EQ(problem({"fp8.enabled=true", "fp8.recipe=mxfp8"}),
            "fp8.recipe: \"mxfp8\" is not available in this version; use delayed, tensorwise, "
            "blockwise");
  EXPECT_EQ(problem({"fp8_format=e4m3"}), "fp8_format: needs fp8.enabled: true");
  EXPECT_EQ(problem({"fp8.enabled=true", "fp16.enabled=true"}),
            "fp8.enabled: is not supported with fp16.enabled; supported: bf16.enabled, or fp32");
  EXPECT_EQ(problem({"fp8.enabled=true", "model.intermediate_size=136"}),
            "fp8.enabled: intermediate_size of the model is 136, expected a multiple of 16");
  EXPECT_EQ(problem({"fp8.enabled=true", "tp=2", "model.intermediate_size=144"}, 2),
            "fp8.enabled: intermediate_size of the model is 144, expected a multiple of 32");
  EXPECT_NE(problem({"fp8.enabled=true", "sequence_length=33", "gradient_accumulation_steps=12"})
                .find("is 33, expected a multiple of 16"),
            std::string::npos);
  // Runs without it resume whether or not this version saved them.
  EXPECT_NE(trajectory_hash(read({"fp8.enabled=true"})), trajectory_hash(read({})));
}

TEST(RunConfig, DocumentsAndTheirEnds) {
  EXPECT_EQ(problem({"data.reset_position_ids=true"}),
            "data.reset_position_ids: needs the end-of-document id: give data.eod_token_id or "
            "data.tokenizer");
  EXPECT_EQ(problem({"data.reset_position_ids=true", "data.tokenizer=byte"}), "");
  EXPECT_EQ(problem({"data.eod_mask_loss=true", "data.eod_token_id=256"}), "");
  EXPECT_EQ(problem({"data.eod_token_id=257"}),
            "data.eod_token_id: expected an id below the model's vocab_size 257, got 257");
  EXPECT_EQ(problem({"data.eod_mask_loss=true", "data.tokenizer=byte", "model.vocab_size=256"}),
            "data.eod_token_id: expected an id below the model's vocab_size 256, got 256 from "
            "data.tokenizer");
  EXPECT_NE(problem({"data.eod_mask_loss=true", "data.tokenizer=no.model"}).find("no.model"),
            std::string::npos);
}

// Resolved where a mask depends on it: another tokenizer then makes another run.
TEST(RunConfig, TheEndOfDocumentsIsPartOfWhatMasksDo) {
  const auto eod = [](const std::vector<std::string>& assignments) {
    const RunConfig config = read(assignments);
    EXPECT_EQ(read_run_config(run_config_to_json(config), 1).data.eod_token_id,
              config.data.eod_token_id);
    return config.data.eod_token_id;
  };
  EXPECT_EQ(eod({"data.tokenizer=byte", "model.eos_token_id=5"}), -1);
  EXPECT_EQ(eod({"data.eod_mask_loss=true", "model.eos_token_id=5"}), 5);
  EXPECT_EQ(eod({"data.eod_mask_loss=true", "data.tokenizer=byte", "model.eos_token_id=5"}), 256);
  EXPECT_EQ(eod({"data.eod_mask_loss=true", "data.tokenizer=byte", "data.eod_token_id=7"}), 7);
  const std::string masked =
      trajectory_hash(read({"data.eod_mask_loss=true", "data.tokenizer=byte"}));
  EXPECT_EQ(trajectory_hash(read({"data.eod_mask_loss=true", "data.eod_token_id=256"})), masked);
  EXPECT_NE(trajectory_hash(read({"data.eod_mask_loss=true", "data.eod_token_id=255"})), masked);
}

TEST(RunConfig, EveryKeyAndAliasCounts) {
  int checked = 0;
  for (const Key& key : run_schema().keys()) {
    if (key.status != KeyStatus::kImplemented || key.path == "model") continue;
    const std::vector<std::string> extra = companions(key);
    const Json before = run_config_to_json(read(extra));
    const std::string value = other_value(key);
    if (value.empty()) continue;
    std::vector<std::string> assignments = extra;
    assignments.push_back(key.path + "=" + value);
    ASSERT_EQ(problem(assignments), "") << key.path;
    const RunConfig config = read(assignments);
    const Json resolved = run_config_to_json(config);
    const bool same_by_design = key.path == "scheduler.params.warmup_max_lr" ||
                                key.path == "zero_optimization.offload_param.device" ||
                                key.path == "optimizer.params.adam_w_mode";
    EXPECT_EQ(resolved == before, same_by_design) << key.path;
    EXPECT_EQ(run_config_to_json(read_run_config(resolved, 1)), resolved) << key.path;
    for (const std::string& alias : key.aliases) {
      assignments.back() = alias + "=" + value;
      ASSERT_EQ(problem(assignments), "") << alias;
      EXPECT_EQ(run_config_to_json(read(assignments)), resolved) << alias;
    }
    ++checked;
  }
  EXPECT_GT(checked, 45);
}

TEST(RunConfig, ResolvedRoundTrips) {
  for (const std::vector<std::string>& assignments : std::vector<std::vector<std::string>>{
           {},
           {"optimizer.type=SGD", "optimizer.params.momentum=0.9",
            "optimizer.params.nesterov=true"},
           {"optimizer.type=Lion", "optimizer.params.betas=[0.95,0.98]", "bf16=true",
            "optimizer.state_dtype=bf16", "optimizer.master_weights=false"},
           {"optimizer.master_weights=false", "bf16=true", "optimizer.state_dtype=bf16"},
           {"fp16.enabled=true", "fp16.loss_scale=128"},
           {"scheduler.type=WSD", "scheduler.params.decay_style=exponential"},
           {"data.data_path=0.3 a 0.7 b", "data.split=8,1,1"},
           {"data.data_path=null", "data.train_data_path=[\"t\"]", "data.valid_data_path=v.bin"},
           {"data.data_path=null", "data.train_data_path=t", "data.valid_data_path.wiki=v.bin",
            "data.valid_data_path.code=[1, \"c\", 2, \"d\"]"}}) {
    const RunConfig config = read(assignments, 2);
    const Json json = run_config_to_json(config);
    const RunConfig again = read_run_config(json, 2);
    EXPECT_EQ(run_config_to_json(again), json);
    EXPECT_EQ(trajectory_hash(again), trajectory_hash(config));
    EXPECT_EQ(again.model, config.model);
    EXPECT_TRUE(again.notes.empty());
  }
}

TEST(RunConfig, TheHashFollowsTheTrajectoryOnly) {
  const std::string hash = trajectory_hash(read({}));
  EXPECT_EQ(hash.size(), 16u);
  for (const char* same : {"output_dir=elsewhere", "save=x", "steps_per_print=9", "eval_iters=3",
                           "cpu.threads_per_rank=1", "comm.algorithm=ring", "micro_batch_size=4",
                           "activation_checkpointing.granularity=full", "comm.bucket_size=2048",
                           "data_path=elsewhere/test", "data_path=/abs/test.bin",
                           // Their values over the completed steps are compared instead.
                           "train_steps=101", "lr_warmup_iters=3", "scheduler.type=constant"})
    EXPECT_EQ(trajectory_hash(read({same})), hash) << same;
  EXPECT_EQ(trajectory_hash(read({}, 4)), hash);
  for (const char* other : {"seed=1", "lr=1e-3", "train_batch_size=24", "bf16=true", "split=9,1",
                            "data_path=data/b", "data_path=0.5 data/test 0.5 b", "seq_length=32",
                            "model.rms_norm_eps=1e-5", "clip_grad=0.5"})
    EXPECT_NE(trajectory_hash(read({other})), hash) << other;
}

// For one wrong character at any position of any key the correct key is suggested.
TEST(RunConfig, EveryTypingErrorIsUnderstood) {
  const Schema& schema = run_schema();
  int checked = 0;
  for (const Key& key : schema.keys()) {
    if (key.status != KeyStatus::kImplemented) continue;
    const std::string leaf = leaf_name(key.path);
    for (size_t at = 0; at < leaf.size(); ++at) {
      std::vector<std::string> wrong = {leaf, leaf, leaf, leaf};
      wrong[0][at] = 'x';
      wrong[1].erase(at, 1);
      wrong[2].insert(at, 1, 'q');
      if (at + 1 < leaf.size()) std::swap(wrong[3][at], wrong[3][at + 1]);
      for (const std::string& name : wrong) {
        const std::string path = join_path(parent_path(key.path), name);
        if (name.empty() || schema.find_any(path) != nullptr || schema.is_section(path)) continue;
        const std::vector<std::string> near = schema.nearest(path);
        EXPECT_EQ(std::count(near.begin(), near.end(), leaf), 1) << path;
        ++checked;
      }
    }
  }
  EXPECT_GT(checked, 2000);
}

TEST(RunConfig, EveryKeyHasHelpAndAReasonToBe) {
  for (const Key& key : run_schema().keys()) {
    EXPECT_GE(key.help.size(), 5u) << key.path;
    for (const std::string& known : key.trivial) EXPECT_NO_THROW(parse_json(known, key.path));
    if (key.default_json.empty()) continue;
    EXPECT_NO_THROW(parse_json(key.default_json, key.path));
  }
}

TEST(LoadRunConfig, ModelPathsAndOverrides) {
  const test::ScratchDirectory scratch;
  std::filesystem::create_directories(scratch.path() + "/models/hf");
  Json document = small();
  std::ofstream(scratch.path() + "/models/hf/config.json") << document["model"].dump();
  const std::string file = scratch.path() + "/run.json";
  const auto write = [&](const Json& json) { std::ofstream(file) << json.dump(); };
  const RunConfig inline_model = read_run_config(document, 1);
  for (const Json& model :
       {Json("models/hf/config.json"), Json("models/hf"), Json({{"config", "models/hf"}})}) {
    document["model"] = model;
    write(document);
    EXPECT_EQ(load_run_config(file, {}, 1).model, inline_model.model);
  }
  const RunConfig changed_run =
      load_run_config(file, {"model.num_hidden_layers=3", "train_iters=7", "train_iters=8"}, 1);
  EXPECT_EQ(changed_run.model.num_layers, 3);
  EXPECT_EQ(changed_run.train_steps, 8);

  const auto said = [&](const std::vector<std::string>& overrides) {
    try {
      load_run_config(file, overrides, 1);
    } catch (const InputError& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  const std::string model_file = scratch.path() + "/models/hf/config.json";
  EXPECT_EQ(said({"trian_steps=3"}), file + " (model: " + model_file +
                                         "): trian_steps: unknown key; did you mean "
                                         "\"train_steps\"?");
  document["model"] = "models";
  write(document);
  EXPECT_EQ(said({}), scratch.path() +
                          "/models: holds no config.json, so it is not a HuggingFace "
                          "model directory");
  EXPECT_EQ(said({"model=" + model_file}), "");
  document["model"] = "nowhere.json";
  write(document);
  EXPECT_EQ(said({}), scratch.path() + "/nowhere.json: cannot be read: No such file or directory");
}

}  // namespace
}  // namespace trireme::test_run_config
