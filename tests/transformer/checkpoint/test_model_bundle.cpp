// Description of a model that inference reads from a run's checkpoint, compared with the run's
// whole configuration.
#include <gtest/gtest.h>

#include "engine/io/sharded_checkpoint.h"
#include "tests/support/scratch_directory.h"
#include "tests/training/config/small_run.h"
#include "training/checkpoint/train_checkpoint.h"
#include "transformer/checkpoint/model_bundle.h"

namespace trireme::test_model_bundle {
using test::problem;
using test::read;
using test::ScratchDirectory;

namespace {

Json state_of(const RunConfig& config) { return {{"config", run_config_to_json(config)}}; }

void expect_same(const ModelBundle& bundle, const RunConfig& config) {
  EXPECT_TRUE(bundle.model == config.model);
  EXPECT_EQ(bundle.dtype, config.dtype);
  EXPECT_EQ(bundle.tokenizer, config.data.tokenizer);
  EXPECT_TRUE(bundle.lora == config.finetune.lora);
  EXPECT_EQ(bundle.load, config.checkpoint.load);
  EXPECT_EQ(bundle.device_backend, config.comm.device_backend);
  EXPECT_EQ(bundle.lineage.special_tokens, config.finetune.enabled);
}

TEST(ModelBundle, IsWhatTheConfigurationSays) {
  const std::vector<std::string> tune{"finetune.train_file=a.jsonl", "data.data_path=null",
                                      "data.tokenizer=byte", "checkpoint.load=base"};
  for (std::vector<std::string> changes : std::vector<std::vector<std::string>>{
           {},
           {"bf16.enabled=true", "comm.device_backend=staged"},
           {"fp16.enabled=true", "data.tokenizer=byte"},
           {"finetune.method=dpo"},
           {"finetune.lora.rank=4"},
           {"finetune.lora.rank=4", "finetune.lora.alpha=3.5", "finetune.lora.dropout=0.25",
            "finetune.lora.use_rslora=true", "finetune.lora.use_dora=true",
            "finetune.lora.target_modules=[\"q_proj\",\"up_proj\"]"},
           {"finetune.lora.rank=1", "finetune.lora.target_modules=.*\\.[kv]_proj"}}) {
    const bool tunes = !changes.empty() && changes.front().starts_with("finetune");
    if (tunes) changes.insert(changes.begin(), tune.begin(), tune.end());
    SCOPED_TRACE(changes.empty() ? "" : changes.back());
    const RunConfig config = read(changes);
    expect_same(model_bundle_of(state_of(config), "checkpoint"), config);
  }
}

TEST(ModelBundle, OfACheckpointNamesIt) {
  const ScratchDirectory dir;
  const auto problem_of = [&](const Json& state) -> std::string {
    const float value = 1;
    const CheckpointPart part{kKindParam, "w", {1}, {}, 0, ConstTensor(&value, DType::kF32, {1})};
    const SaveOptions options{.root = dir / "saved", .step = 1};
    const std::string saved = save_checkpoint(options, {part}, state).directory;
    try {
      read_model_bundle(CheckpointReader(saved));
    } catch (const InputError& e) {
      return e.what();
    }
    return "";
  };
  Json state = state_of(read({}));
  EXPECT_EQ(problem_of(state), "");
  state["config"]["model"]["model_type"] = "none";
  EXPECT_NE(problem_of(state).find("saved/step-00000001: "), std::string::npos)
      << problem_of(state);
  state["config"].erase("model");
  EXPECT_NE(problem_of(state).find("does not have the format of this version"), std::string::npos);
  EXPECT_NE(problem_of(Json()).find("does not have the format of this version"), std::string::npos);
  state = state_of(read({}));
  state["config"]["finetune"] = {
      {"lora", {{"rank", int64_t{1} << 40}, {"alpha", 1}, {"target_modules", "q_proj"}}}};
  EXPECT_NE(problem_of(state).find("is not between 1 and 65536"), std::string::npos);
}

}  // namespace
}  // namespace trireme::test_model_bundle
