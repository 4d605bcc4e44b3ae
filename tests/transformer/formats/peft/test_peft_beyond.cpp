// PEFT adapters that change more than linear layers: whole modules, biases, the embedding and the
// head (make_peft.py --beyond).
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "engine/core/error.h"
#include "engine/io/safetensors.h"
#include "parallel/comm/world.h"
#include "tests/support/compare.h"
#include "tests/support/json_file.h"
#include "tests/support/scratch_directory.h"
#include "tests/transformer/formats/peft/peft_case.h"
#include "transformer/checkpoint/loaded_model.h"
#include "transformer/formats/hf/hf_model.h"
#include "transformer/formats/merged_model.h"
#include "transformer/formats/peft/peft_keys.h"
#include "transformer/formats/peft/stacked_adapters.h"

namespace trireme::test::test_peft_beyond {
namespace {

using Json = nlohmann::ordered_json;

class PeftBeyond : public testing::TestWithParam<const char*> {
 protected:
  std::string folder() const { return peft_golden() + GetParam(); }
  std::string base() const {
    return peft_golden() + (std::string(GetParam()).starts_with("gpt2") ? "gpt2/base" : "base");
  }
};

TEST_P(PeftBeyond, MergesIntoWhatItIsThere) {
  auto adapter = std::make_unique<PeftAdapter>(folder());
  adapter->check_adapters(HfModel(base()).config());
  EXPECT_TRUE(adapter->needs_merging(HfModel(base()).config()));
  const LoraConfig lora = adapter->lora();
  const MergedModel merged(std::make_unique<HfModel>(base()), std::move(adapter), lora);
  expect_logits(
      peft_logits(merged, nullptr),
      to_doubles(
          SafetensorsReader(peft_golden() + "expected_beyond.safetensors").tensor(GetParam())));
}

// With --adapter the weights are those that merge-lora writes, also after another base is read.
TEST_P(PeftBeyond, IsMergedIntoTheWeightsThatAreServed) {
  auto adapter = std::make_unique<PeftAdapter>(folder());
  const LoraConfig lora = adapter->lora();
  const MergedModel merged(std::make_unique<HfModel>(base()), std::move(adapter), lora);
  const ModelConfig config = merged.config();
  run_threads(1, [&](Communicator& world) {
    LoadedModel loaded(base(), world, DType::kF32, folder());
    EXPECT_FALSE(loaded.bundle().lora.enabled());
    Ctx ctx(1, "test");
    loaded.load(ctx, Layout{}, 8);
    const std::unique_ptr<LoadedModel> next = loaded.open_next(base());
    next->load(ctx, Layout{}, 8);
    for (LoadedModel* model : {&loaded, next.get()}) {
      ParameterStore& store = model->parameters();
      for (ParamHandle h = 0; h < std::ssize(store.specs()); ++h) {
        const ParameterSpec& spec = store.specs()[static_cast<size_t>(h)];
        const ModelParameter p{
            spec.name, {spec.shape.dims().begin(), spec.shape.dims().end()}, false};
        std::vector<float> want(static_cast<size_t>(spec.shape.numel()));
        merged.read(config, p, whole_box(p.shape), 0,
                    Tensor(want.data(), DType::kF32, Shape{spec.shape.numel()}));
        EXPECT_EQ(to_doubles(store.value(h)), std::vector<double>(want.begin(), want.end()))
            << spec.name;
      }
    }
  });
}

TEST_P(PeftBeyond, IsRefusedBesideOthersAndAsTheBeginningOfTraining) {
  const HfModel model(base());
  std::vector<std::unique_ptr<const PeftAdapter>> adapters;
  adapters.push_back(std::make_unique<const PeftAdapter>(folder()));
  const bool dora = adapters[0]->lora().dora;
  EXPECT_THROW(adapters[0]->check_beginning(model.config(), adapters[0]->lora()), InputError);
  try {
    StackedAdapters(std::move(adapters), model.config());
    FAIL() << "is served beside others";
  } catch (const InputError& e) {
    const std::string said = e.what();
    EXPECT_NE(said.find(dora ? "use_dora" : "modules_to_save"), std::string::npos) << said;
    EXPECT_NE(said.find("merge-lora"), std::string::npos) << said;
  }
}

INSTANTIATE_TEST_SUITE_P(Peft, PeftBeyond,
                         testing::Values("saved", "beyond", "dora_head", "gpt2/biased",
                                         "gpt2/own_biased"),
                         [](const auto& test) {
                           std::string name = test.param;
                           std::ranges::replace(name, '/', '_');
                           return name;
                         });

// "" or why the adapter is refused, with changes of its configuration and of the base's.
std::string refusal_of(
    const std::string& adapter, const Json& changes,
    const std::function<void(ModelConfig&)>& change = [](ModelConfig&) {}) {
  const ScratchDirectory dir;
  std::filesystem::copy(peft_golden() + adapter, dir / "adapter");
  auto config = read_json_file<Json>(dir / "adapter/adapter_config.json");
  config.update(changes);
  std::ofstream(dir / "adapter/adapter_config.json") << config.dump();
  ModelConfig model = HfModel(peft_golden() + "base").config();
  change(model);
  try {
    PeftAdapter(dir / "adapter").check_adapters(model);
  } catch (const InputError& e) {
    return e.what();
  }
  return "";
}

TEST(PeftBeyondFiles, MustBeWhatTheConfigurationSays) {
  const auto expect = [](const std::string& said, const char* part) {
    EXPECT_NE(said.find(part), std::string::npos) << said;
  };
  EXPECT_EQ(refusal_of("saved", Json::object()), "");
  expect(refusal_of("saved", {{"modules_to_save", {"lm_head", "norm"}}}),
         "left over: base_model.model.model.layers.1.mlp.up_proj.weight");
  expect(refusal_of("saved", {{"modules_to_save", {"lm_head", "norm", "mlp.up_proj"}}}),
         "missing: base_model.model.model.layers.0.mlp.up_proj.weight");
  expect(refusal_of("saved", {{"modules_to_save", "lm_head"}}), "must be a list of names");
  expect(refusal_of("saved", {{"modules_to_save", {""}}}), "must be a list of names");
  expect(refusal_of("saved", {{"bias", "some"}}), "bias \"some\" is not available");
  expect(refusal_of("saved", Json::object(), [](ModelConfig& m) { m.vocab_size = 60; }),
         "lm_head.weight: (61, 16), the model has 60 rows of 16");
  expect(refusal_of("beyond", {{"target_modules", {"lm_head", "o_proj"}}}),
         "left over: base_model.model.model.embed_tokens.lora_embedding_A");
  expect(refusal_of("beyond", {{"use_dora", true}}), "magnitudes (use_dora) of the embedding");
  // PEFT changes one of the two that a tied table is.
  for (const char* adapter : {"saved", "beyond"})
    expect(
        refusal_of(adapter, Json::object(), [](ModelConfig& m) { m.tie_word_embeddings = true; }),
        "head is its embedding");
}

TEST(PeftKeysWithoutEffect, AreNotedUnlessTheySayNothing) {
  const auto note = [](const Json& config) { return check_peft_keys("file", config); };
  const auto golden = read_json_file<Json>(peft_golden() + "adapter/adapter_config.json");
  EXPECT_EQ(note(golden), "");
  EXPECT_EQ(note({{"lora_dropout", 0.0}, {"inference_mode", true}, {"megatron_core", nullptr}}),
            "");
  EXPECT_EQ(note({{"lora_dropout", 0.05}, {"r", 4}, {"eva_config", {{"rho", 2.0}}}}),
            "file: keys without effect on what the adapter computes: lora_dropout, eva_config");
}

}  // namespace
}  // namespace trireme::test::test_peft_beyond
