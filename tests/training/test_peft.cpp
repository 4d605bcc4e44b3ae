// Adapters in PEFT's files (tests/golden/peft, made by PEFT): the same logits, the same files back, and merged
// into the weights.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/io/safetensors.h"
#include "tests/support/compare.h"
#include "tests/support/scratch_directory.h"
#include "transformer/hf_model.h"
#include "transformer/merged_model.h"
#include "transformer/peft_adapter.h"

namespace trireme::test {
namespace {

const std::string kGolden = TRIREME_SOURCE_DIR "/tests/golden/peft/";

std::vector<double> expected(const char* name) {
  return to_doubles(SafetensorsReader(kGolden + "expected.safetensors").tensor(name));
}

// The logits of the golden tokens, (T, V).
std::vector<double> logits(const ModelSource& source, const PeftAdapter* adapter) {
  const ModelConfig& config = source.config();
  const LoraConfig lora = adapter != nullptr ? adapter->lora() : LoraConfig();
  Model model(config, DType::kF32, Layout{}, split_layers(config.num_layers, 1, {}), lora);
  ParameterStore store(model.parameters(), DType::kF32);
  Ctx ctx(1, "test");
  store.allocate(ctx, false);
  source.load(ctx, model, store);
  if (adapter != nullptr) {
    adapter->check_adapters(config);
    adapter->load_adapters(ctx, model, store);
  }
  const std::vector<double> ids = expected("input_ids");
  const std::vector<int32_t> tokens(ids.begin(), ids.end());
  std::vector<int32_t> positions(tokens.size());
  std::vector<int64_t> rows(tokens.size());
  for (size_t i = 0; i < tokens.size(); ++i) rows[i] = positions[i] = static_cast<int32_t>(i);
  const int64_t n = std::ssize(tokens);
  const std::vector<int32_t> offsets{0, static_cast<int32_t>(n)};
  Tokens t;
  t.count = n;
  t.ids = ConstTensor(tokens.data(), DType::kI32, Shape{n});
  t.positions = ConstTensor(positions.data(), DType::kI32, Shape{n});
  t.rows = ConstTensor(rows.data(), DType::kI64, Shape{n});
  t.cu_q = t.cu_k = ConstTensor(offsets.data(), DType::kI32, Shape{2});
  t.position_end = t.longest = n;
  model.reserve_positions(ctx, n);
  Pass pass{ctx, store, t};
  Activation x = model.forward(pass, 0, {}, nullptr, Recompute::kNone);
  const Buffer out("logits", n * config.vocab_size * 4);
  const Tensor y = out.tensor(DType::kF32, Shape{n, config.vocab_size});
  model.logits(pass, std::move(x), y);
  return to_doubles(y);
}

void expect_close(const std::vector<double>& got, const std::vector<double>& want) {
  ASSERT_EQ(got.size(), want.size());
  double largest = 0, error = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    largest = std::max(largest, std::abs(want[i]));
    error = std::max(error, std::abs(got[i] - want[i]));
  }
  EXPECT_LT(error, 1e-5 * largest);
}

TEST(Peft, AdaptersComputeWhatTheyDoThere) {
  const HfModel base(kGolden + "base");
  const PeftAdapter adapter(kGolden + "adapter");
  expect_close(logits(base, nullptr), expected("plain"));
  expect_close(logits(base, &adapter), expected("adapted"));
}

TEST(Peft, MergedWeightsComputeTheSame) {
  auto adapter = std::make_unique<PeftAdapter>(kGolden + "adapter");
  const LoraConfig lora = adapter->lora();
  const MergedModel merged(std::make_unique<HfModel>(kGolden + "base"), std::move(adapter), lora);
  expect_close(logits(merged, nullptr), expected("adapted"));
}

TEST(Peft, WritesWhatItReads) {
  const ScratchDirectory dir;
  const HfModel base(kGolden + "base");
  const PeftAdapter adapter(kGolden + "adapter");
  write_peft_adapter(adapter.lora(), base.config(), adapter, "base", dir / "adapter");
  const SafetensorsReader theirs(kGolden + "adapter/adapter_model.safetensors"),
      ours(dir / "adapter/adapter_model.safetensors");
  ASSERT_EQ(ours.entries().size(), theirs.entries().size());
  for (const SafetensorsEntry& entry : theirs.entries()) {
    const SafetensorsEntry* found = ours.find(entry.name);
    ASSERT_NE(found, nullptr) << entry.name;
    EXPECT_EQ(found->shape, entry.shape);
    EXPECT_EQ(to_doubles(ours.tensor(entry.name)), to_doubles(theirs.tensor(entry.name)));
  }
  std::ifstream a(kGolden + "adapter/adapter_config.json"), b(dir / "adapter/adapter_config.json");
  auto wanted = nlohmann::json::parse(a), written = nlohmann::json::parse(b);
  for (auto* config : {&wanted, &written})
    std::sort((*config)["target_modules"].begin(), (*config)["target_modules"].end());
  for (const auto& [key, value] : written.items()) EXPECT_EQ(value, wanted[key]) << key;
}

TEST(Peft, SaysWhatDoesNotFit) {
  const ScratchDirectory dir;
  std::filesystem::copy(kGolden + "adapter", dir / "adapter");
  const auto said = [&](const char* key, const nlohmann::json& value) {
    std::ifstream in(kGolden + "adapter/adapter_config.json");
    auto config = nlohmann::json::parse(in);
    config[key] = value;
    std::ofstream(dir / "adapter/adapter_config.json") << config.dump();
    try {
      PeftAdapter(dir / "adapter").check_adapters(HfModel(kGolden + "base").config());
    } catch (const InputError& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_EQ(said("r", 4), "");
  EXPECT_NE(said("r", 5).find("(4, 16) instead of (5, 16)"), std::string::npos);
  EXPECT_NE(said("target_modules", {"q_proj", "k_proj"})
                .find("missing: base_model.model.model."
                      "layers.0.self_attn.k_proj.lora_A"),
            std::string::npos);
  EXPECT_NE(said("peft_type", "IA3").find("IA3"), std::string::npos);
  EXPECT_NE(said("bias", "all").find("bias \"all\" is not available"), std::string::npos);
  EXPECT_NE(said("modules_to_save", {"lm_head"}).find("modules_to_save"), std::string::npos);
}

}  // namespace
}  // namespace trireme::test
