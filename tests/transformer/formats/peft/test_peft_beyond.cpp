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
#include "tests/support/golden_models.h"
#include "tests/support/json_file.h"
#include "tests/support/scratch_directory.h"
#include "tests/transformer/formats/hf_directory.h"
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

// With --adapter the weights equal those that merge-lora writes, also after another base is loaded.
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
  expect(refusal_of("saved", {{"modules_to_save", {"experts"}}},
                    [](ModelConfig& m) { m = HfModel(golden_folder("gpt_oss")).config(); }),
         "model.layers.0.mlp.experts.down_proj holds the experts of a layer, which no adapter "
         "replaces");
  expect(refusal_of("saved", {{"modules_to_save", "lm_head"}}), "must be a list of names");
  expect(refusal_of("saved", {{"modules_to_save", {""}}}), "must be a list of names");
  expect(refusal_of("saved", {{"bias", "some"}}), "bias \"some\" is not supported");
  expect(refusal_of("saved", Json::object(), [](ModelConfig& m) { m.vocab_size = 60; }),
         "lm_head.weight: (61, 16), the model has 60 rows of 16");
  expect(refusal_of("beyond", {{"target_modules", {"lm_head", "o_proj"}}}),
         "left over: base_model.model.model.embed_tokens.lora_embedding_A");
  expect(refusal_of("beyond", {{"use_dora", true}}), "magnitudes (use_dora) of the embedding");
  const auto tied = [](ModelConfig& m) { m.tie_word_embeddings = true; };
  expect(refusal_of("beyond", {{"use_dora", true}}, tied), "model.lm_head.weight.detach().clone()");
  expect(refusal_of("beyond", {{"use_dora", true}, {"ensure_weight_tying", true}}, tied),
         "train the adapter without use_dora");
}

// The base of the goldens with the head's values equal to the embedding's: tied, or in two tensors.
void write_base(const std::string& directory, bool tied) {
  const SafetensorsReader weights(peft_golden() + "base/model.safetensors");
  std::map<std::string, FileTensor> tensors;
  for (const SafetensorsEntry& entry : weights.entries())
    tensors[entry.name] = {DType::kF32, entry.shape, to_doubles(weights.tensor(entry.name))};
  tensors["lm_head.weight"] = tensors.at("model.embed_tokens.weight");
  if (tied) tensors.erase("lm_head.weight");
  std::filesystem::create_directories(directory);
  write_safetensors(directory + "/model.safetensors", tensors);
  auto config = read_json_file<Json>(peft_golden() + "base/config.json");
  config["tie_word_embeddings"] = tied;
  std::ofstream(directory + "/config.json") << config.dump();
}

std::unique_ptr<MergedModel> merged_model(const std::string& base, const std::string& adapter) {
  auto peft = std::make_unique<PeftAdapter>(adapter);
  auto model = std::make_unique<HfModel>(base);
  peft->check_adapters(model->config());
  EXPECT_TRUE(peft->needs_merging(model->config()));
  const LoraConfig lora = peft->lora();
  return std::make_unique<MergedModel>(std::move(model), std::move(peft), lora);
}

std::vector<float> values_of(const ModelSource& source, const ModelConfig& config,
                             const ModelParameter& p) {
  std::vector<float> out(static_cast<size_t>(whole_box(p.shape).numel()));
  source.read(config, p, whole_box(p.shape), 0,
              Tensor(out.data(), DType::kF32, Shape{std::ssize(out)}));
  return out;
}

// PEFT changes one of the two modules of a tied table: the result equals that of the same base with
// two tensors, for which the goldens hold PEFT's results.
TEST(PeftOfATiedModel, ChangesOneModuleOfTheTwo) {
  for (const char* adapter : {"saved", "beyond", "dora_head", "head", "table", "whole_table"}) {
    SCOPED_TRACE(adapter);
    const ScratchDirectory dir;
    write_base(dir / "tied", true);
    write_base(dir / "untied", false);
    std::filesystem::copy(peft_golden() + "beyond", dir / "adapter");
    auto config = read_json_file<Json>(dir / "adapter/adapter_config.json");
    const SafetensorsReader beyond(peft_golden() + "beyond/adapter_model.safetensors");
    std::map<std::string, FileTensor> tensors;
    for (const SafetensorsEntry& entry : beyond.entries())
      tensors[entry.name] = {DType::kF32, entry.shape, to_doubles(beyond.tensor(entry.name))};
    const auto drop = [&](const char* part) {
      std::erase_if(tensors, [&](const auto& t) {
        return t.first.find(part) != std::string::npos || t.first.ends_with("base_layer.weight");
      });
    };
    const std::string kind = adapter;
    if (kind == "head") drop("embed_tokens");
    if (kind == "table" || kind == "whole_table") drop("lm_head");
    if (kind == "whole_table") {
      drop("lora_embedding");
      FileTensor whole{DType::kF32, {61, 16}, normals("whole", 61 * 16, 1)};
      tensors["base_model.model.model.embed_tokens.weight"] = whole;
      config["modules_to_save"] = {"embed_tokens"};
      config["target_modules"] = {"o_proj"};
    }
    if (kind == "head") config["target_modules"] = {"o_proj", "lm_head"};
    if (kind == "table") config["target_modules"] = {"o_proj", "embed_tokens"};
    std::ofstream(dir / "adapter/adapter_config.json") << config.dump();
    write_safetensors(dir / "adapter/adapter_model.safetensors", tensors);
    const bool golden = std::filesystem::exists(peft_golden() + adapter);
    const std::string folder = golden ? peft_golden() + adapter : dir / "adapter";
    const auto tied = merged_model(dir / "tied", folder);
    const auto untied = merged_model(dir / "untied", folder);
    EXPECT_FALSE(tied->config().tie_word_embeddings);
    EXPECT_TRUE(tied->config() == untied->config());
    tied->check(tied->config());
    int differ = 0;
    for (const ModelParameter& p : model_parameters(untied->config())) {
      // The goldens' base layers belong to the base with another head.
      if (kind == "beyond" || kind == "dora_head") continue;
      const std::vector<float> got = values_of(*tied, tied->config(), p);
      EXPECT_EQ(got, values_of(*untied, untied->config(), p)) << p.name;
      if (p.name == "lm_head.weight" || p.name == "model.embed_tokens.weight")
        differ += got != values_of(HfModel(dir / "untied"), untied->config(), p) ? 1 : 0;
    }
    EXPECT_EQ(differ, kind == "beyond" || kind == "dora_head" ? 0 : 1);
    run_threads(1, [&](Communicator& world) {
      const LoadedModel loaded(dir / "tied", world, DType::kF32, folder);
      EXPECT_FALSE(loaded.bundle().model.tie_word_embeddings);
    });
    EXPECT_THROW(PeftAdapter(folder).check_beginning(HfModel(dir / "tied").config(),
                                                     PeftAdapter(folder).lora()),
                 InputError);
  }
}

// ensure_weight_tying: the file contains the change of the table twice, with the head's factors
// being the table's transposed. The model stays tied; where the two differ it does not.
TEST(PeftOfATiedModel, StaysTiedWhereBothAreChangedAlike) {
  const ScratchDirectory dir;
  write_base(dir / "base", true);
  const int64_t rows = 61, width = 16, rank = 2;
  const auto transposed = [](const FileTensor& t) {
    FileTensor out{t.dtype, {t.shape[1], t.shape[0]}, t.values};
    for (int64_t r = 0; r < t.shape[0]; ++r)
      for (int64_t c = 0; c < t.shape[1]; ++c)
        out.values[static_cast<size_t>(c * t.shape[0] + r)] =
            t.values[static_cast<size_t>(r * t.shape[1] + c)];
    return out;
  };
  const std::string table = "base_model.model.model.embed_tokens.",
                    head = "base_model.model.lm_head.";
  std::map<std::string, FileTensor> tensors;
  tensors[table + "lora_embedding_A"] = {DType::kF32, {rank, rows}, normals("a", rank * rows, 1)};
  tensors[table + "lora_embedding_B"] = {DType::kF32, {width, rank}, normals("b", width * rank, 1)};
  tensors[head + "lora_A.weight"] = transposed(tensors.at(table + "lora_embedding_B"));
  tensors[head + "lora_B.weight"] = transposed(tensors.at(table + "lora_embedding_A"));
  const auto merged = [&] {
    std::filesystem::create_directories(dir / "adapter");
    std::ofstream(dir / "adapter/adapter_config.json")
        << R"({"peft_type": "LORA", "r": 2, "lora_alpha": 4, "ensure_weight_tying": true,
               "target_modules": ["model.embed_tokens"]})";
    write_safetensors(dir / "adapter/adapter_model.safetensors", tensors);
    return merged_model(dir / "base", dir / "adapter");
  };
  const auto model = merged();
  EXPECT_TRUE(model->config().tie_word_embeddings);
  const ModelParameter embedding{"model.embed_tokens.weight", {rows, width}, false};
  const std::vector<float> got = values_of(*model, model->config(), embedding);
  std::vector<float> want = values_of(HfModel(dir / "base"), model->config(), embedding);
  const auto& a = tensors.at(head + "lora_A.weight").values;
  const auto& b = tensors.at(head + "lora_B.weight").values;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < width; ++c) {
      double sum = want[static_cast<size_t>(r * width + c)];
      for (int64_t k = 0; k < rank; ++k)
        sum += 2 * b[static_cast<size_t>(r * rank + k)] * a[static_cast<size_t>(k * width + c)];
      EXPECT_NEAR(got[static_cast<size_t>(r * width + c)], sum, 1e-5);
    }
  tensors.at(head + "lora_A.weight").values[3] += 1;
  const auto differs = merged();
  EXPECT_FALSE(differs->config().tie_word_embeddings);
  const ModelParameter own{"lm_head.weight", {rows, width}, false};
  EXPECT_EQ(values_of(*differs, differs->config(), embedding), got);
  EXPECT_NE(values_of(*differs, differs->config(), own), got);
}

TEST(PeftOfATiedModel, AdviceNamesTheTable) {
  const auto refusal = [](const Json& config) {
    try {
      check_peft_keys("file", config);
    } catch (const InputError& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  Json config = {{"use_qalora", true}, {"target_modules", {"q_proj"}}};
  EXPECT_EQ(refusal(config).find("clone()"), std::string::npos) << refusal(config);
  config["target_modules"] = {"q_proj", "lm_head"};
  EXPECT_NE(refusal(config).find("clone()"), std::string::npos) << refusal(config);
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
