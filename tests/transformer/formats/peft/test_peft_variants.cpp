// PEFT adapters with differing layers: their own ranks and factors, omitted layers (make_peft.py
// --variants).
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "engine/core/error.h"
#include "engine/io/safetensors.h"
#include "tests/support/compare.h"
#include "tests/support/golden_models.h"
#include "tests/support/json_file.h"
#include "tests/support/scratch_directory.h"
#include "tests/transformer/formats/peft/peft_case.h"
#include "training/run/run_directory.h"
#include "transformer/formats/hf/hf_model.h"
#include "transformer/formats/merged_model.h"
#include "transformer/formats/peft/stacked_adapters.h"

namespace trireme::test::test_peft_variants {
namespace {

class PeftVariant : public testing::TestWithParam<const char*> {
 protected:
  std::string folder() const { return peft_golden() + GetParam(); }
  std::string base() const {
    return folder().find("gpt2") == std::string::npos ? peft_golden() + "base"
                                                      : peft_golden() + "gpt2/base";
  }
  std::vector<double> expected() const {
    return to_doubles(
        SafetensorsReader(peft_golden() + "expected_variants.safetensors").tensor(GetParam()));
  }
};

TEST_P(PeftVariant, ComputesWhatItDoesThere) {
  const PeftAdapter adapter(folder());
  expect_logits(peft_logits(HfModel(base()), &adapter), expected());
}

TEST_P(PeftVariant, MergesIntoTheSame) {
  auto adapter = std::make_unique<PeftAdapter>(folder());
  adapter->check_adapters(HfModel(base()).config());
  const LoraConfig lora = adapter->lora();
  const MergedModel merged(std::make_unique<HfModel>(base()), std::move(adapter), lora);
  expect_logits(peft_logits(merged, nullptr), expected());
}

INSTANTIATE_TEST_SUITE_P(Peft, PeftVariant,
                         testing::Values("ranks", "factors", "dora_ranks", "excluded",
                                         "excluded_expression", "some_layers", "one_layer",
                                         "gpt2/ranks"),
                         [](const auto& test) {
                           std::string name = test.param;
                           std::ranges::replace(name, '/', '_');
                           return name;
                         });

// Elements of every adapter in the stack are its own times its factor, and zero beyond its rank.
TEST(PeftVariants, AreServedBesideOthers) {
  const HfModel base(peft_golden() + "base");
  std::vector<std::unique_ptr<const PeftAdapter>> adapters;
  for (const char* name : {"adapter", "factors"})
    adapters.push_back(std::make_unique<const PeftAdapter>(peft_golden() + name));
  const StackedAdapters stacked(std::move(adapters), base.config());
  EXPECT_EQ(stacked.columns(1), AdapterColumns(4, 4 + 7));
  const ModelParameter b{"model.layers.0.self_attn.o_proj.lora_B.weight", {16, 11}, false};
  std::vector<float> got(16 * 11);
  stacked.read(base.config(), b, whole_box(b.shape), 0,
               Tensor(got.data(), DType::kF32, Shape{16 * 11}));
  const std::vector<double> theirs =
      to_doubles(SafetensorsReader(peft_golden() + "factors/adapter_model.safetensors")
                     .tensor("base_model.model." + b.name));
  for (size_t row = 0; row < 16; ++row)
    for (size_t k = 0; k < 7; ++k)
      EXPECT_FLOAT_EQ(got[row * 11 + 4 + k],
                      k < 4 ? static_cast<float>(theirs[row * 4 + k] * 3 / 4) : 0.0F);
}

std::string refusal(const std::string& adapter, const nlohmann::json& changes) {
  const ScratchDirectory dir;
  std::filesystem::copy(peft_golden() + adapter, dir / "adapter");
  auto config = read_json_file<nlohmann::json>(dir / "adapter/adapter_config.json");
  config.update(changes);
  std::ofstream(dir / "adapter/adapter_config.json") << config.dump();
  try {
    PeftAdapter(dir / "adapter").check_adapters(HfModel(peft_golden() + "base").config());
  } catch (const InputError& e) {
    return e.what();
  }
  return "";
}

TEST(PeftVariants, OfOtherLayersThanTheFilesAreRefused) {
  const auto expect = [](const std::string& said, const char* part) {
    EXPECT_NE(said.find(part), std::string::npos) << said;
  };
  EXPECT_EQ(refusal("excluded", nlohmann::json::object()), "");
  expect(refusal("excluded", {{"exclude_modules", {"mlp.up_proj"}}}),
         "missing: base_model.model.model.layers.0.self_attn.o_proj.lora_A.weight");
  expect(refusal("excluded", {{"exclude_modules", "("}}), "exclude_modules");
  expect(refusal("excluded", {{"exclude_modules", {1}}}), "exclude_modules must be a list");
  expect(refusal("adapter", {{"exclude_modules", {"o_proj"}}}),
         "left over: base_model.model.model.layers.0.self_attn.o_proj.lora_A.weight");
  expect(refusal("one_layer", {{"layers_to_transform", {0, 1}}}),
         "missing: base_model.model.model.layers.1.self_attn.k_proj.lora_A.weight");
  expect(refusal("one_layer", {{"layers_to_transform", "0"}}), "layers_to_transform \"0\" must be");
  expect(refusal("adapter", {{"rank_pattern", {{"q_proj", 5}}}}), "(4, 16) instead of (5, 16)");
  expect(refusal("adapter", {{"rank_pattern", {{"q_proj", 0}}}}), "1 to 65536");
  expect(refusal("adapter", {{"alpha_pattern", {{"q_proj", "x"}}}}), "expected a number");
  expect(refusal("adapter", {{"alpha_pattern", {{"(", 1}}}}), "alpha_pattern");
}

// A rank that no file of factors can have is an input error, whatever memory is available.
TEST(PeftVariants, HugeRanksAreRefused) {
  for (const int64_t rank : {int64_t{65537}, int64_t{1} << 40, int64_t{1} << 62})
    EXPECT_NE(refusal("adapter", {{"r", rank}}).find("a whole number from 1 to 65536"),
              std::string::npos);
  EXPECT_NE(refusal("adapter", {{"r", 65536}}).find("(4, 16) instead of (65536, 16)"),
            std::string::npos);
}

TEST(PeftVariants, WithRanksOfTheirOwnAreNoBeginningOfTraining) {
  const PeftAdapter adapter(peft_golden() + "ranks");
  LoraConfig lora = PeftAdapter(peft_golden() + "adapter").lora();
  try {
    adapter.check_beginning(HfModel(peft_golden() + "base").config(), lora);
    FAIL() << "is not refused";
  } catch (const InputError& e) {
    EXPECT_NE(std::string(e.what()).find("rank_pattern"), std::string::npos) << e.what();
  }
}

// Notes that the run logs when it starts.
std::vector<std::string> notes_of_run(const std::string& model, const char* targets) {
  const ScratchDirectory dir;
  RunConfig config;
  config.checkpoint.load = golden_folder(model);
  config.model = HfModel(config.checkpoint.load).config();
  config.output_dir = dir / "run";
  config.checkpoint.save = dir / "run/checkpoints";
  config.finetune.enabled = true;
  config.finetune.lora = {.rank = 2, .alpha = 4, .targets = {targets}};
  return plan_resume(config, "", {}).notes;
}

TEST(PeftVariants, ThatPeftDropsAreWarnedAbout) {
  for (const char* model : {"deepseek_v2", "deepseek_v3"}) {
    const std::vector<std::string> notes = notes_of_run(model, "all-linear");
    ASSERT_EQ(notes.size(), 1) << model;
    for (const char* part : {model, "mlp", "merge-lora", "\"attention\""})
      EXPECT_NE(notes[0].find(part), std::string::npos) << part << " in " << notes[0];
    EXPECT_TRUE(notes_of_run(model, "attention").empty()) << model;
  }
  for (const char* model : {"llama", "mixtral", "qwen2_moe"})
    EXPECT_TRUE(notes_of_run(model, "all-linear").empty()) << model;
}

// A Trireme keyword, for which PEFT has the layers' names.
TEST(PeftVariants, AttentionIsAWordForItsLayers) {
  for (const auto& [model, names] :
       {std::pair("qwen3_moe", std::set<std::string>{"q_proj", "k_proj", "v_proj", "o_proj"}),
        std::pair("deepseek_v3", std::set<std::string>{"q_a_proj", "q_b_proj", "kv_a_proj_with_mqa",
                                                       "kv_b_proj", "o_proj"})}) {
    const ModelConfig config = HfModel(golden_folder(model)).config();
    std::set<std::string> found;
    for (const ModelParameter& p :
         adapter_parameters(config, {.rank = 1, .alpha = 1, .targets = {"attention"}})) {
      const std::string layer = p.name.substr(0, p.name.find(".lora_"));
      found.insert(layer.substr(layer.rfind('.') + 1));
    }
    EXPECT_EQ(found, names) << model;
  }
}

}  // namespace
}  // namespace trireme::test::test_peft_variants
