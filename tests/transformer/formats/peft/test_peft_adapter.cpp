// Adapters in PEFT's files (tests/golden/peft, made by PEFT): the same logits, identical files when
// written again, and merged weights.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/core/error.h"
#include "engine/io/safetensors.h"
#include "parallel/comm/world.h"
#include "tests/support/compare.h"
#include "tests/support/json_file.h"
#include "tests/support/scratch_directory.h"
#include "tests/transformer/formats/peft/peft_case.h"
#include "training/checkpoint/train_checkpoint.h"
#include "training/step/train_step.h"
#include "transformer/formats/hf/hf_model.h"
#include "transformer/formats/merged_model.h"
#include "transformer/formats/peft/peft_adapter.h"

namespace trireme::test::test_peft_adapter {
namespace {

const std::string kGolden = peft_golden();
const std::string kGpt2 = kGolden + "gpt2/";
constexpr const char* kGpt2File = "gpt2/expected.safetensors";

std::vector<double> expected(const char* name, const char* file = "expected.safetensors") {
  return to_doubles(SafetensorsReader(kGolden + file).tensor(name));
}
std::vector<double> expected_dora(const char* name) {
  return expected(name, "expected_dora.safetensors");
}

TEST(Peft, AdaptersComputeWhatTheyDoThere) {
  const HfModel base(kGolden + "base");
  const PeftAdapter adapter(kGolden + "adapter");
  expect_logits(peft_logits(base, nullptr), expected("plain"));
  expect_logits(peft_logits(base, &adapter), expected("adapted"));
}

TEST(Peft, MagnitudesComputeWhatTheyDoThere) {
  const PeftAdapter adapter(kGolden + "dora");
  EXPECT_TRUE(adapter.lora().dora);
  expect_logits(peft_logits(HfModel(kGolden + "base"), &adapter), expected_dora("logits"));
}

// PEFT takes a string as a regular expression that matches the full name of a layer.
TEST(Peft, TargetModulesMayBeAnExpression) {
  const HfModel base(kGolden + "base");
  const LoraConfig wanted = PeftAdapter(kGolden + "adapter").lora();
  std::string names;
  for (const std::string& target : wanted.targets) names += (names.empty() ? "" : "|") + target;
  const auto with = [&](const std::string& targets) {
    const ScratchDirectory dir;
    std::filesystem::copy(kGolden + "adapter", dir / "adapter");
    auto json = read_json_file<nlohmann::json>(kGolden + "adapter/adapter_config.json");
    json["target_modules"] = targets;
    std::ofstream(dir / "adapter/adapter_config.json") << json.dump();
    const PeftAdapter adapter(dir / "adapter");
    adapter.check_adapters(base.config());
    return adapter_parameters(base.config(), adapter.lora()).size();
  };
  const size_t all = adapter_parameters(base.config(), wanted).size();
  EXPECT_EQ(with(concat(R"(.*\.(self_attn|mlp)\.()", names, ")")), all);
  EXPECT_THROW(with(wanted.targets.front()), InputError);  // not a full name
  EXPECT_THROW(with(concat(R"(.*\.0\..*\.()", names, ")")),
               InputError);  // for one layer only: others are left over
}

// The selection of layers after writing and reading: suffixes of names, full names, a regular
// expression.
nlohmann::json written_targets(const std::string& folder, const ModelSource& base,
                               const LoraConfig& lora) {
  const ScratchDirectory dir;
  write_peft_adapter(lora, base.config(), PeftAdapter(folder), "base", dir / "adapter");
  const PeftAdapter written(dir / "adapter");
  written.check_beginning(base.config(), lora);
  return read_json_file<nlohmann::json>(dir / "adapter/adapter_config.json")["target_modules"];
}

TEST(Peft, TargetModulesAreWrittenAsTheyAreGiven) {
  const HfModel base(kGolden + "base");
  LoraConfig some = PeftAdapter(kGolden + "adapter").lora();
  some.targets = {"self_attn.q_proj", "model.layers.0.mlp.down_proj"};
  EXPECT_EQ(adapter_parameters(base.config(), some).size(),
            static_cast<size_t>(2 * base.config().num_layers + 2));
  EXPECT_EQ(written_targets(kGolden + "adapter", base, some), nlohmann::json(some.targets));
  some.targets = {"attn.q_proj"};  // not a suffix after a dot
  EXPECT_TRUE(adapter_parameters(base.config(), some).empty());
  some.targets.clear();
  some.pattern = R"(.*(q_proj|0\.mlp\.down_proj))";
  EXPECT_EQ(written_targets(kGolden + "adapter", base, some), some.pattern);
}

// A regular expression for our names does not apply to PEFT's.
TEST(Peft, Gpt2sExpressionsBecomeNames) {
  const HfModel base(kGpt2 + "base");
  LoraConfig some = PeftAdapter(kGpt2 + "adapter").lora();
  some.targets.clear();
  some.pattern = R"(.*\.0\.attn\.[qkv]_proj)";
  EXPECT_EQ(written_targets(kGpt2 + "adapter", base, some),
            nlohmann::json({"transformer.h.0.attn.c_attn"}));
  some.pattern = R"(.*\.0\.attn\.c_attn)";
  EXPECT_EQ(written_targets(kGpt2 + "adapter", base, some), some.pattern);
}

// Also in training, with dropout of their input.
TEST(Peft, NewMagnitudesChangeNothing) {
  const HfModel base(kGolden + "base");
  for (const double dropout : {0.0, 0.5}) {
    const LoraConfig lora{.rank = 3,
                          .alpha = 5,
                          .dropout = dropout,
                          .dora = true,
                          .targets = {"q_proj", "v_proj", "o_proj", "up_proj"}};
    expect_logits(peft_logits(base, nullptr, lora), expected("plain"));
  }
}

// In PEFT, query, key and value are one layer with one adapter.
TEST(Peft, Gpt2ComputesWhatItDoesThere) {
  const HfModel base(kGpt2 + "base");
  expect_logits(peft_logits(base, nullptr), expected("plain", kGpt2File));
  for (const char* name : {"adapter", "dora"}) {
    const PeftAdapter adapter(kGpt2 + name);
    expect_logits(peft_logits(base, &adapter), expected(name, kGpt2File));
    const MergedModel merged(std::make_unique<HfModel>(kGpt2 + "base"),
                             std::make_unique<PeftAdapter>(kGpt2 + name), adapter.lora());
    expect_logits(peft_logits(merged, nullptr), expected(name, kGpt2File));
  }
}

// Trireme has three adapters, which are written as one.
TEST(Peft, Gpt2IsWrittenAsOneLayer) {
  const ScratchDirectory dir;
  const HfModel base(kGpt2 + "base");
  for (const char* name : {"adapter", "dora"}) {
    const PeftAdapter adapter(kGpt2 + name);
    write_peft_adapter(adapter.lora(), base.config(), adapter, "base", dir / name);
    const PeftAdapter written(dir / name);
    EXPECT_EQ(written.lora(), adapter.lora());
    written.check_beginning(base.config(), adapter.lora());
    expect_logits(peft_logits(base, &written), expected(name, kGpt2File));
    const auto json = nlohmann::json::parse(std::ifstream(dir / name + "/adapter_config.json"));
    EXPECT_EQ(json["rank_pattern"], (nlohmann::json{{"c_attn", 12}}));
    EXPECT_TRUE(json["fan_in_fan_out"]);
    const SafetensorsReader file(dir / name + "/adapter_model.safetensors");
    const std::string layer = "base_model.model.transformer.h.1.attn.c_attn.";
    EXPECT_EQ(file.tensor(layer + "lora_A.weight").shape(), (Shape{12, 16}));
    EXPECT_EQ(file.tensor(layer + "lora_B.weight").shape(), (Shape{48, 12}));
  }
}

// Adapters of some of the three: the others' parts are zero.
TEST(Peft, Gpt2MayHaveAdaptersOfSomeParts) {
  const ScratchDirectory dir;
  const HfModel base(kGpt2 + "base");
  const PeftAdapter adapter(kGpt2 + "adapter");
  LoraConfig some = adapter.lora();
  some.targets = {"q_proj", "v_proj"};
  write_peft_adapter(some, base.config(), adapter, "base", dir / "some");
  const PeftAdapter written(dir / "some");
  const MergedModel merged(std::make_unique<HfModel>(kGpt2 + "base"),
                           std::make_unique<PeftAdapter>(dir / "some"), some);
  const std::vector<double> got = peft_logits(base, &written);
  expect_logits(got, peft_logits(merged, nullptr));
  double far = 0;
  for (size_t i = 0; i < got.size(); ++i)
    far = std::max(far, std::abs(got[i] - expected("adapter", kGpt2File)[i]));
  EXPECT_GT(far, 0.01) << "the test would not notice";
  EXPECT_THROW(written.check_beginning(base.config(), some), InputError);
  LoraConfig magnitudes = some;
  magnitudes.dora = true;
  EXPECT_THROW(write_peft_adapter(magnitudes, base.config(), PeftAdapter(kGpt2 + "dora"), "base",
                                  dir / "refused"),
               InputError);
}

// Another rank than Trireme writes: one adapter, also where three of ours would have the same rank.
TEST(Peft, Gpt2MayHaveAnotherRank) {
  const ScratchDirectory dir;
  const HfModel base(kGpt2 + "base");
  const PeftAdapter adapter(kGpt2 + "adapter");
  write_peft_adapter(adapter.lora(), base.config(), adapter, "base", dir / "adapter");
  const std::string weights = dir / "adapter/adapter_model.safetensors";
  const SafetensorsReader file(weights);
  std::vector<SafetensorsSpec> specs;
  for (const SafetensorsEntry& entry : file.entries())
    specs.push_back({entry.name, DType::kF32, entry.shape});
  std::filesystem::create_directory(dir / "dense");
  std::filesystem::copy(dir / "adapter/adapter_config.json", dir / "dense");
  SafetensorsWriter writer(dir / "dense/adapter_model.safetensors", specs);
  for (const SafetensorsSpec& spec : specs) {
    const Shape shape{std::span<const int64_t>(spec.shape)};
    const std::vector<float> ones(static_cast<size_t>(shape.numel()), 1);
    writer.write(ConstTensor(ones.data(), DType::kF32, shape));
  }
  writer.commit();
  PeftAdapter(dir / "dense").check_adapters(base.config());
  PeftAdapter(dir / "adapter").check_adapters(base.config());
  auto json = nlohmann::json::parse(std::ifstream(dir / "adapter/adapter_config.json"));
  json["rank_pattern"]["c_attn"] = 8;
  std::ofstream(dir / "adapter/adapter_config.json") << json.dump();
  EXPECT_THROW(PeftAdapter(dir / "adapter").check_adapters(base.config()), InputError);
}

MergedModel merged_with(const char* adapter_name) {
  auto adapter = std::make_unique<PeftAdapter>(kGolden + adapter_name);
  const LoraConfig lora = adapter->lora();
  return {std::make_unique<HfModel>(kGolden + "base"), std::move(adapter), lora};
}

TEST(Peft, MergedWeightsComputeTheSame) {
  expect_logits(peft_logits(merged_with("adapter"), nullptr), expected("adapted"));
  expect_logits(peft_logits(merged_with("dora"), nullptr), expected_dora("logits"));
}

// Any columns of any rows equal those of the whole weight.
TEST(Peft, MergedWeightsAreReadInParts) {
  for (const char* name : {"adapter", "dora"}) {
    const MergedModel merged = merged_with(name);
    const ModelConfig& config = merged.config();
    const ModelParameter weight{
        "model.layers.1.mlp.down_proj.weight", {config.hidden_size, config.intermediate_size}, {}};
    const int64_t columns = config.intermediate_size;
    std::vector<double> whole(static_cast<size_t>(config.hidden_size * columns));
    const auto read = [&](const TensorBox& box, int64_t begin, std::vector<double>& into) {
      merged.read(config, weight, box, begin,
                  Tensor(into.data(), DType::kF64, Shape{std::ssize(into)}));
    };
    read(whole_box(weight.shape), 0, whole);
    const TensorBox box{.start = {3, 5}, .extent = {4, 7}};
    for (int64_t begin = 0; begin < box.numel(); ++begin) {
      std::vector<double> part(static_cast<size_t>(std::min<int64_t>(9, box.numel() - begin)));
      read(box, begin, part);
      for (size_t i = 0; i < part.size(); ++i) {
        const int64_t at = begin + static_cast<int64_t>(i);
        ASSERT_EQ(part[i], whole[static_cast<size_t>((3 + at / 7) * columns + 5 + at % 7)])
            << name << " " << at;
      }
    }
  }
}

// Gradients of A, B and m for a next-token loss, in float64.
TEST(Peft, MagnitudesLearnWhatTheyDoThere) {
  const HfModel base(kGolden + "base");
  const PeftAdapter adapter(kGolden + "dora");
  const std::vector<double> ids = expected("input_ids");
  const int64_t n = std::ssize(ids) - 1;
  RunConfig config;
  config.model = base.config();
  config.dtype = DType::kF64;
  config.sequence_length = n;
  config.train_steps = 2;
  config.micro_batch_size = config.train_batch_size = 1;
  config.gradient_accumulation_steps = 1;
  config.finetune.lora = adapter.lora();
  MicroBatch batch = shape_of_micro_batch(1, n);
  batch.valid_targets = n;
  for (int64_t i = 0; i < n; ++i) {
    const auto at = static_cast<size_t>(i);
    batch.tokens[at] = static_cast<int32_t>(ids[at]);
    batch.targets[at] = static_cast<int32_t>(ids[at + 1]);
    batch.positions[at] = static_cast<int32_t>(i);
    batch.global_index[at] = i;
  }
  run_threads(1,
              [&](Communicator& world) {
                const Groups groups(world, config.parallel, 1);
                Ctx ctx(1, "test");
                TrainState state(config, groups.layout);
                TrainStep step(config, state, groups, ctx);
                const ArenaPlan plan = start_fresh(state, step, ctx);
                base.load(ctx, state.model, state.store);
                adapter.load_adapters(ctx, state.model, state.store);
                const StepResult result = step.run(0, {batch}, plan);
                const double loss = expected_dora("loss").front();
                EXPECT_NEAR(result.loss, loss, 1e-6 * loss);
                int compared = 0;
                for (ParamHandle h = 0; h < std::ssize(state.store.specs()); ++h) {
                  const ParameterSpec& spec = state.store.specs()[static_cast<size_t>(h)];
                  if (!spec.adapter) continue;
                  const std::vector<double> want = expected_dora(spec.name.c_str());
                  const Tensor all = state.store.flat_gradients();
                  const FlatRange range = state.store.range(h);
                  const std::vector<double> got = to_doubles(all.slice(0, range.begin, range.end));
                  double largest = 0;
                  for (const double g : want) largest = std::max(largest, std::abs(g));
                  for (size_t i = 0; i < want.size(); ++i)
                    ASSERT_NEAR(got[i], want[i], 2e-6 * largest) << spec.name;
                  ++compared;
                }
                EXPECT_EQ(compared, 2 * 5 * 3);
              },
              {});
}

// Magnitudes are initialized to the norms of the weights' rows, which are not computed where a
// checkpoint replaces them.
TEST(Peft, MagnitudesOfACheckpointAreNotComputed) {
  RunConfig config;
  config.model = HfModel(kGolden + "base").config();
  config.dtype = DType::kF32;
  config.finetune.lora = {.rank = 2, .alpha = 2, .dora = true, .targets = {"q_proj"}};
  for (const bool begins : {true, false}) {
    Ctx ctx(1, "test");
    TrainState state(config, Layout{});
    state.allocate(ctx);
    load_initial_weights(ctx, kGolden + "base", "", begins, state);
    int others = 0;
    for (ParamHandle h = 0; h < std::ssize(state.store.specs()); ++h) {
      if (!state.store.specs()[static_cast<size_t>(h)].name.ends_with(kMagnitudeSuffix)) continue;
      for (const double m : to_doubles(state.store.value(h))) others += m != 1 ? 1 : 0;
    }
    EXPECT_EQ(others, begins ? 2 * 16 : 0);
  }
}

TEST(Peft, ListsWhatTrainingCannotBeginWith) {
  const ModelConfig config = HfModel(kGolden + "base").config();
  const PeftAdapter adapter(kGolden + "dora");
  adapter.check_beginning(config, adapter.lora());
  LoraConfig other = adapter.lora();
  other.rank = 8;
  other.alpha = 2.5;
  other.dora = false;
  other.targets = {"q_proj", "k_proj"};
  try {
    adapter.check_beginning(config, other);
    FAIL() << "is not refused";
  } catch (const InputError& e) {
    const std::string what = e.what();
    for (const char* said :
         {"finetune.lora.rank is 8, its r 4", "finetune.lora.alpha is 2.5, its lora_alpha 6",
          "finetune.lora.use_dora is false, its use_dora true",
          "missing: base_model.model.model.layers.0.self_attn.k_proj.lora_A.weight",
          "left over: base_model.model.model.layers.0.self_attn.v_proj.lora_A.weight"})
      EXPECT_NE(what.find(said), std::string::npos) << said << " in " << what;
  }
}

void expect_written_as_read(const std::string& name) {
  const ScratchDirectory dir;
  const HfModel base(kGolden + "base");
  const PeftAdapter adapter(kGolden + name);
  write_peft_adapter(adapter.lora(), base.config(), adapter, "base", dir / "adapter");
  const SafetensorsReader theirs(kGolden + name + "/adapter_model.safetensors"),
      ours(dir / "adapter/adapter_model.safetensors");
  ASSERT_EQ(ours.entries().size(), theirs.entries().size());
  for (const SafetensorsEntry& entry : theirs.entries()) {
    const SafetensorsEntry* found = ours.find(entry.name);
    ASSERT_NE(found, nullptr) << entry.name;
    EXPECT_EQ(found->shape, entry.shape);
    EXPECT_EQ(to_doubles(ours.tensor(entry.name)), to_doubles(theirs.tensor(entry.name)));
  }
  auto wanted = read_json_file<nlohmann::json>(kGolden + name + "/adapter_config.json");
  auto written = read_json_file<nlohmann::json>(dir / "adapter/adapter_config.json");
  for (auto* config : {&wanted, &written})
    std::sort((*config)["target_modules"].begin(), (*config)["target_modules"].end());
  for (const auto& [key, value] : written.items()) EXPECT_EQ(value, wanted[key]) << key;
}
TEST(Peft, WritesWhatItReads) {
  expect_written_as_read("adapter");
  expect_written_as_read("dora");
}

TEST(Peft, SaysWhatDoesNotFit) {
  const ScratchDirectory dir;
  std::filesystem::copy(kGolden + "adapter", dir / "adapter");
  const auto said = [&](const char* key, const nlohmann::json& value) {
    auto config = read_json_file<nlohmann::json>(kGolden + "adapter/adapter_config.json");
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
}

}  // namespace
}  // namespace trireme::test::test_peft_adapter
