// Layers for multi-token prediction: import and export copy them byte by byte, and whatever does
// not write them does not count them in config.json.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/io/safetensors_directory.h"
#include "tests/support/compare.h"
#include "tests/support/golden_models.h"
#include "tests/support/json_file.h"
#include "tests/support/scratch_directory.h"
#include "tests/transformer/formats/hf/refusals.h"
#include "tests/transformer/formats/hf_directory.h"
#include "transformer/checkpoint/checkpoint_model.h"
#include "transformer/checkpoint/import_model.h"
#include "transformer/checkpoint/model_diff.h"
#include "transformer/checkpoint/open_model.h"
#include "transformer/families/config_json.h"
#include "transformer/formats/hf/hf_writer.h"
#include "transformer/formats/mtp_layers.h"

namespace trireme::test::test_mtp_layers {
namespace {

namespace fs = std::filesystem;

constexpr const char* kNextN = "num_nextn_predict_layers";
constexpr const char* kStep = "/step-00000000";

// A model of the family with two layers, in bfloat16, whose configuration counts `layers` MTP
// layers.
HfFiles small_model(const std::string& golden, const std::string& key, int64_t layers) {
  Json config = read_json_file<Json>(golden_folder(golden) + "/config.json");
  config["num_hidden_layers"] = 2;
  config[key] = layers;
  HfFiles files = HfFiles::random(config, DType::kBF16);
  for (auto& [name, t] : files.tensors)
    if (name.ends_with("e_score_correction_bias")) t.dtype = DType::kF32;
  return files;
}

// Adds an MTP layer: tensors of several dtypes and shapes.
void add_mtp_layer(HfFiles& files, int64_t layer) {
  const auto add = [&](const char* name, DType dtype, const std::vector<int64_t>& shape) {
    const std::string full = concat("model.layers.", 2 + layer, ".", name);
    int64_t n = 1;
    for (const int64_t size : shape) n *= size;
    files.tensors[full] = {dtype, shape, normals(full, n)};
  };
  add("enorm.weight", DType::kF32, {32});
  add("eh_proj.weight", DType::kBF16, {32, 64});
  add("mlp.experts.0.gate_proj.weight", DType::kF16, {12, 32});
  add("mlp.gate.e_score_correction_bias", DType::kBF16, {8});
  add("shared_head.head.weight", DType::kBF16, {99, 32});
}

int64_t count_mtp(const std::vector<CheckpointTensor>& tensors) {
  return std::ranges::count(tensors, kKindMtp, &CheckpointTensor::kind);
}

TEST(MtpLayers, ImportAndExportKeepTheirBytes) {
  const std::pair<const char*, const char*> cases[] = {{"deepseek_v3", kNextN},
                                                       {"kimi_k2", kNextN},
                                                       {"glm4_moe", kNextN},
                                                       {"minimax_m2", "num_mtp_modules"}};
  for (const auto& [golden, key] : cases) {
    SCOPED_TRACE(golden);
    const ScratchDirectory dir;
    HfFiles files = small_model(golden, key, 2);
    for (const int64_t layer : {0, 1}) add_mtp_layer(files, layer);
    files.write(dir / "hf", 3);
    const HfModel source(dir / "hf");
    EXPECT_EQ(mtp_parameters(source).size(), 10u);
    import_model(source, dir / "ours", {});
    const CheckpointReader reader(dir / "ours");
    EXPECT_EQ(count_mtp(reader.manifest().tensors), 10);
    EXPECT_TRUE(reader.verify().empty());
    const CheckpointModel imported(dir / "ours");
    EXPECT_TRUE(imported.config() == source.config());
    write_hf_directory(imported, dir / "out", {.max_shard_bytes = 9000});
    expect_same_bytes(dir / "hf", dir / "out");
    EXPECT_EQ(read_json_file<Json>(dir / "out/config.json")[key], 2);
    EXPECT_TRUE(HfModel(dir / "out").config() == source.config());
    write_hf_directory(source, dir / "direct", {});
    expect_same_bytes(dir / "hf", dir / "direct");
    const ModelDiff diff = diff_models(dir / "hf", dir / "ours");
    EXPECT_TRUE(diff.differences.empty());
    EXPECT_EQ(diff.tensors, std::ssize(model_parameters(source.config())) + 10);
  }
}

// --dtype is that of the weights that are computed with.
TEST(MtpLayers, AnotherTypeOrQuantizationLeavesThemAsTheyAre) {
  const ScratchDirectory dir;
  HfFiles files = small_model("glm4_moe", kNextN, 1);
  add_mtp_layer(files, 0);
  files.write(dir / "hf");
  import_model(HfModel(dir / "hf"), dir / "ours", {.dtype = DType::kF32});
  const CheckpointModel imported(dir / "ours");
  write_hf_directory(imported, dir / "half", {.dtype = DType::kF16});
  write_hf_directory(imported, dir / "fp8",
                     {.quantization = Quantization{.method = Quantization::Method::kFp8}});
  const SafetensorsDirectory before(dir / "hf");
  for (const char* to : {"half", "fp8"}) {
    const SafetensorsDirectory after(dir / to);
    for (const ModelParameter& p : mtp_parameters(imported)) {
      const SourceTensor *x = before.find(p.name), *y = after.find(p.name);
      ASSERT_TRUE(x != nullptr && y != nullptr) << p.name;
      EXPECT_EQ(x->dtype_name, y->dtype_name) << p.name;
      EXPECT_TRUE(std::ranges::equal(before.bytes(*x), after.bytes(*y))) << p.name;
    }
  }
  const Json config = read_json_file<Json>(dir / "fp8/config.json");
  EXPECT_EQ(config[kNextN], 1);
  const Json kept = config["quantization_config"]["modules_to_not_convert"];
  EXPECT_NE(std::ranges::find(kept, Json("model.layers.2.eh_proj")), kept.end());
}

// The last layer of a quantized model taken for an MTP layer.
TEST(MtpLayers, QuantizedOnesAreWrittenAsNumbersLikeAllWeights) {
  const ScratchDirectory dir;
  HfFiles files = small_model("deepseek_v3", kNextN, 0);
  files.config()["num_hidden_layers"] = 3;
  HfFiles::random(files.config(), DType::kBF16).write(dir / "hf");
  write_hf_directory(HfModel(dir / "hf"), dir / "fp8",
                     {.quantization = Quantization{.method = Quantization::Method::kFp8}});
  Json config = read_json_file<Json>(dir / "fp8/config.json");
  config["num_hidden_layers"] = 2;
  config[kNextN] = 1;
  std::ofstream(dir / "fp8/config.json") << config;
  const HfModel source(dir / "fp8");
  import_model(source, dir / "ours", {});
  write_hf_directory(CheckpointModel(dir / "ours"), dir / "out", {});
  const HfModel out(dir / "out");
  const SourceTensor* weight = out.tensors().find("model.layers.2.mlp.experts.0.up_proj.weight");
  ASSERT_NE(weight, nullptr);
  EXPECT_EQ(weight->dtype_name, "BF16");
  EXPECT_EQ(out.config().extra_layers, 1);
  EXPECT_TRUE(diff_models(dir / "fp8", dir / "out", {.tolerance = 1.0 / 128}).differences.empty());
  EXPECT_FALSE(read_json_file<Json>(dir / "out/config.json").contains("quantization_config"));
}

// Writes a directory of `files` from what its import gives, and returns the log.
std::string log_of_copies(const HfFiles& files, const ScratchDirectory& dir) {
  files.write(dir / "hf");
  testing::internal::CaptureStderr();
  import_model(HfModel(dir / "hf"), dir / "ours", {});
  write_hf_directory(CheckpointModel(dir / "ours"), dir / "out", {});
  return testing::internal::GetCapturedStderr();
}

void expect_none(const std::string& directory) {
  const HfModel out(directory);
  out.check(out.config());
  EXPECT_EQ(out.config().extra_layers, 0);
  EXPECT_EQ(read_json_file<Json>(directory + "/config.json")[kNextN], 0);
  for (const SourceTensor& t : out.tensors().tensors())
    EXPECT_FALSE(t.name.starts_with("model.layers.2.")) << t.name;
}

TEST(MtpLayers, AreLeftOutWithANoteWhereOneIsMissingOrUnsupported) {
  for (const bool missing : {true, false}) {
    SCOPED_TRACE(missing);
    const ScratchDirectory dir;
    HfFiles files = small_model("glm4_moe", kNextN, missing ? 2 : 1);
    add_mtp_layer(files, 0);
    if (!missing) files.tensors["model.layers.2.map"] = {DType::kI32, {2}, {1, 2}};
    expect_says(log_of_copies(files, dir),
                {dir / "hf", "layers for multi-token prediction",
                 missing ? "have no layer 3" : "\"model.layers.2.map\" is I32 (2), not a vector"});
    EXPECT_EQ(count_mtp(CheckpointReader(dir / "ours").manifest().tensors), 0);
    expect_none(dir / "out");
  }
}

// Saves the weights of a checkpoint as a training run does.
void save_run(const CheckpointModel& from, const std::string& root) {
  const std::vector<ModelParameter> parameters = model_parameters(from.config());
  std::vector<Buffer> values;
  std::vector<CheckpointPart> parts;
  for (const ModelParameter& p : parameters) {
    const TensorBox whole = whole_box(p.shape);
    values.emplace_back("weights", whole.numel() * dtype_size(DType::kF32));
    const Tensor data = values.back().tensor(DType::kF32, Shape{std::span<const int64_t>(p.shape)});
    from.read(from.config(), p, whole, 0, data.reshape({whole.numel()}));
    parts.push_back({p.selection_bias ? kKindRouter : kKindParam, p.name, p.shape, {}, 0, data});
  }
  save_checkpoint({.root = root, .step = 5}, parts,
                  {{"config", {{"model", model_config_to_json(from.config())}}}});
}

TEST(MtpLayers, ARunThatTrainsTheModelKeepsNone) {
  const ScratchDirectory dir;
  HfFiles files = small_model("glm4_moe", kNextN, 1);
  add_mtp_layer(files, 0);
  files.write(dir / "hf");
  import_model(HfModel(dir / "hf"), dir / "ours", {});
  save_run(CheckpointModel(dir / "ours"), dir / "run");
  const CheckpointModel run(dir / "run");
  EXPECT_EQ(run.config().extra_layers, 1);
  testing::internal::CaptureStderr();
  write_hf_directory(run, dir / "out", {});
  expect_says(testing::internal::GetCapturedStderr(),
              {"layers for multi-token prediction (1)", "have no layer 2"});
  expect_none(dir / "out");
  const ModelDiff diff = diff_models(dir / "ours", dir / "run", {.tolerance = 1e-6});
  ASSERT_EQ(diff.differences.size(), 5u);
  for (const TensorDifference& d : diff.differences) expect_says(d.what, {"only in", "ours"});
}

TEST(MtpLayers, DamageIsFoundAndNamed) {
  const ScratchDirectory dir;
  HfFiles files = small_model("deepseek_v3", kNextN, 1);
  add_mtp_layer(files, 0);
  files.write(dir / "hf");
  import_model(HfModel(dir / "hf"), dir / "ours", {});
  std::string shard;
  int64_t offset = 0;
  {
    const CheckpointReader reader(dir / "ours");
    const CheckpointTensor* t = reader.find(kKindMtp, "model.layers.2.eh_proj.weight");
    ASSERT_NE(t, nullptr);
    shard = reader.directory() + "/" + reader.manifest().shards[0].file;
    offset = t->slices[0].offset;
  }
  {
    std::fstream file(shard, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(offset);
    const char flipped = static_cast<char>(file.get() ^ 1);
    file.seekp(offset);
    file.put(flipped);
  }
  const std::vector<std::string> problems = CheckpointReader(dir / "ours").verify();
  ASSERT_EQ(problems.size(), 1u);
  expect_says(problems[0], {"mtp", "model.layers.2.eh_proj.weight"});
  fs::resize_file(shard, static_cast<uintmax_t>(offset));
  expect_says(refusal([&] { CheckpointModel(dir / "ours"); }), {"shard-00000-of-00001"});
}

// A manifest that names the layers of the model itself.
TEST(MtpLayers, OnlyLayersAfterTheLastAreAccepted) {
  const ScratchDirectory dir;
  HfFiles files = small_model("glm4_moe", kNextN, 1);
  files.write(dir / "hf");
  const HfModel source(dir / "hf");
  const float value = 1;
  const auto refusal_of = [&](const std::string& name, bool twice) {
    const std::string root = concat(dir / "saved", twice, name.size());
    std::vector<CheckpointPart> parts;
    for (const char* kind : {kKindMtp, kKindParam})
      if (kind == std::string(kKindMtp) || twice)
        parts.push_back({kind, name, {1}, {}, 0, ConstTensor(&value, DType::kF32, Shape{1})});
    save_checkpoint({.root = root, .step = 0}, parts,
                    imported_state(source.config(), DType::kF32, ""));
    return refusal([&] {
      const CheckpointModel model(root);
      model.check(model.config());
    });
  };
  expect_says(refusal_of("model.norm.weight", true), {"model.norm.weight", "mtp and as param"});
  expect_says(refusal_of("model.layers.3.x", false), {"left over", "model.layers.3.x"});
  const std::string accepted = refusal_of("model.layers.2.x", false);
  expect_says(accepted, {"missing"});
  EXPECT_EQ(accepted.find("left over"), std::string::npos) << accepted;
}

TEST(MtpLayers, AMergedModelHasNone) {
  const ScratchDirectory dir;
  HfFiles files = small_model("glm4_moe", kNextN, 1);
  add_mtp_layer(files, 0);
  files.write(dir / "hf");
  const std::string module = "model.layers.0.self_attn.q_proj";
  const int64_t out = files.tensors[module + ".weight"].shape[0];
  const auto factor = [&](const char* name, const std::vector<int64_t>& shape) {
    return FileTensor{DType::kF32, shape, normals(name, shape[0] * shape[1])};
  };
  fs::create_directory(dir / "peft");
  write_safetensors(dir / "peft/adapter_model.safetensors",
                    {{"base_model.model." + module + ".lora_A.weight", factor("a", {2, 32})},
                     {"base_model.model." + module + ".lora_B.weight", factor("b", {out, 2})}});
  std::ofstream(dir / "peft/adapter_config.json") << Json{{"peft_type", "LORA"},
                                                          {"r", 2},
                                                          {"lora_alpha", 4},
                                                          {"target_modules", {"q_proj"}},
                                                          {"layers_to_transform", {0}}};
  testing::internal::CaptureStderr();
  write_hf_directory(*open_merged_model(dir / "hf", dir / "peft"), dir / "out", {});
  expect_says(testing::internal::GetCapturedStderr(), {"have no layer 2"});
  expect_none(dir / "out");
}

}  // namespace
}  // namespace trireme::test::test_mtp_layers
