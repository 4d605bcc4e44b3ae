// Third-party quantized checkpoints: the values defined by their formats
// (tests/golden/make_quantized.py).
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/io/safetensors.h"
#include "tests/support/compare.h"
#include "tests/support/json_file.h"
#include "tests/support/scratch_directory.h"
#include "tests/support/source_folder.h"
#include "training/config/run_config.h"
#include "transformer/checkpoint/model_diff.h"
#include "transformer/formats/gguf/gguf_model.h"
#include "transformer/formats/hf/hf_model.h"
#include "transformer/formats/hf/hf_writer.h"
#include "transformer/formats/load_config.h"

namespace trireme::test::test_quantized_model {
namespace {

namespace fs = std::filesystem;
const char* const kKinds[] = {"fp8",    "gptq",    "gptq_desc_act", "awq",
                              "ct_fp8", "ct_int8", "ct_int4",       "ct_int4_zeros"};

std::string folder(const std::string& kind) {
  return concat(test::source_folder(), "/tests/golden/quantized/", kind);
}

std::string refusal(const std::string& directory) {
  try {
    const HfModel model(directory);
    model.check(model.config());
  } catch (const InputError& e) {
    return e.what();
  }
  return "";
}

TEST(QuantizedModel, EveryNumber) {
  for (const char* kind : kKinds) {
    SCOPED_TRACE(kind);
    const HfModel model(folder(kind));
    model.check(model.config());
    EXPECT_EQ(model.dtype(), DType::kBF16) << "codes are no type to compute in";
    const SafetensorsReader expected(folder(kind) + "/expected.safetensors");
    for (const ModelParameter& p : model_parameters(model.config())) {
      const ConstTensor wanted = expected.tensor(p.name);
      std::vector<float> found(static_cast<size_t>(wanted.numel()));
      model.read(model.config(), p, whole_box(p.shape), 0,
                 Tensor(found.data(), DType::kF32, Shape{wanted.numel()}));
      for (size_t i = 0; i < found.size(); ++i)
        ASSERT_EQ(found[i], wanted.as<float>()[i]) << p.name << "[" << i << "]";
      // A rank's columns of a matrix.
      if (p.shape.size() != 2 || p.shape[1] < 4) continue;
      const TensorBox box{{1, 2}, {p.shape[0] - 2, p.shape[1] / 2}};
      std::vector<float> part(static_cast<size_t>(box.numel()));
      model.read(model.config(), p, box, 0, Tensor(part.data(), DType::kF32, Shape{box.numel()}));
      for (int64_t k = 0; k < box.numel(); ++k) {
        const int64_t row = 1 + k / box.extent[1], column = 2 + k % box.extent[1];
        ASSERT_EQ(part[static_cast<size_t>(k)], wanted.as<float>()[row * p.shape[1] + column]);
      }
    }
  }
}

// A run may use such a directory, or a .gguf, for its model's sizes.
TEST(QuantizedModel, AreTheModelOfARun) {
  std::vector<std::string> notes;
  for (const char* kind : kKinds)
    EXPECT_TRUE(load_model_config(folder(kind), notes) == HfModel(folder(kind)).config()) << kind;
  const ScratchDirectory dir;
  const auto run = [&](const std::string& model) {
    return read_run_config({{"model", model},
                            {"train_steps", 1},
                            {"train_batch_size", 1},
                            {"output_dir", dir / "run"},
                            {"data", {{"data_path", dir / "tokens"}}}},
                           1)
        .model;
  };
  EXPECT_TRUE(run(folder("gptq")) == HfModel(folder("gptq")).config());
  const HfModel source(folder("fp8"));
  write_gguf(source, dir / "x.gguf", {.type = "F32"});
  EXPECT_TRUE(run(dir / "x.gguf") == open_model_source(dir / "x.gguf")->config());
}

// A tensor without elements is not read, but its shape is multiplied.
TEST(QuantizedModel, AShapeThatOverflowsIsRefused) {
  const ScratchDirectory dir;
  fs::copy_file(folder("awq") + "/config.json", dir / "config.json");
  const std::string header =
      R"({"a.qweight": {"dtype": "I32", "shape": [0, 4611686018427387904], "data_offsets": [0, 0]},
          "a.qzeros": {"dtype": "I32", "shape": [0, 1], "data_offsets": [0, 0]},
          "a.scales": {"dtype": "F16", "shape": [0, 1], "data_offsets": [0, 0]}})";
  std::ofstream out(dir / "model.safetensors", std::ios::binary);
  const auto size = static_cast<uint64_t>(header.size());
  out.write(reinterpret_cast<const char*>(&size), sizeof(size));
  out << header;
  out.close();
  EXPECT_NE(
      refusal(dir.path()).find("its codes have the unsupported shape (0, 4611686018427387904)"),
      std::string::npos)
      << refusal(dir.path());
}

// Refusal of a directory with the configuration of mxfp4/ and one file: this header, then `bytes`
// bytes.
std::string refusal_of_file(const std::string& header, size_t bytes) {
  const ScratchDirectory dir;
  fs::copy_file(folder("mxfp4") + "/config.json", dir / "config.json");
  std::ofstream out(dir / "model.safetensors", std::ios::binary);
  const auto size = static_cast<uint64_t>(header.size());
  out.write(reinterpret_cast<const char*>(&size), sizeof(size));
  out << header << std::string(bytes, '\0');
  out.close();
  return refusal(dir.path());
}

TEST(QuantizedModel, BlocksThatDoNotFitAreRefused) {
  const auto expect_says = [](const std::string& header, size_t bytes, const std::string& part) {
    const std::string message = refusal_of_file(header, bytes);
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  expect_says(
      R"({"a_blocks": {"dtype": "U8", "shape": [0, 1152921504606846976, 16], "data_offsets": [0, 0]},
                  "a_scales": {"dtype": "U8", "shape": [0, 1152921504606846976], "data_offsets": [0, 0]}})",
      0, "its codes have the unsupported shape (0, 1152921504606846976, 16)");
  expect_says(R"({"a_blocks": {"dtype": "U8", "shape": [2, 1, 16], "data_offsets": [0, 32]}})", 32,
              "missing tensor a_scales");
  expect_says(R"({"a_scales": {"dtype": "U8", "shape": [2, 1], "data_offsets": [0, 2]}})", 2,
              "left over (1):\n    a_scales");
  expect_says(R"({"a_blocks": {"dtype": "U8", "shape": [2, 1, 8], "data_offsets": [0, 16]},
                  "a_scales": {"dtype": "U8", "shape": [2, 1], "data_offsets": [16, 18]}})",
              18, "a_blocks is (2, 1, 8), expected blocks of 16 bytes");
  expect_says(R"({"a_blocks": {"dtype": "U8", "shape": [2, 1, 16], "data_offsets": [0, 32]},
                  "a_scales": {"dtype": "I8", "shape": [2, 1], "data_offsets": [32, 34]}})",
              34, "a_scales is I8, expected U8");
  expect_says(R"({"a_blocks": {"dtype": "U8", "shape": [2, 1, 16], "data_offsets": [0, 32]},
                  "a_scales": {"dtype": "U8", "shape": [1, 2], "data_offsets": [32, 34]}})",
              34, "a_scales is (1, 2), expected (2, 1)");
  expect_says(R"({"a_blocks": {"dtype": "U8", "shape": [2, 1, 16], "data_offsets": [0, 32]},
                  "a_scales": {"dtype": "U8", "shape": [2, 1], "data_offsets": [32, 34]},
                  "a": {"dtype": "U8", "shape": [2], "data_offsets": [34, 36]}})",
              36, "a holds its numbers and a_blocks its codes");
}

TEST(QuantizedModel, LeavesAsAnOrdinaryDirectory) {
  for (const char* kind : kKinds) {
    const ScratchDirectory dir;
    write_hf_directory(HfModel(folder(kind)), dir / "out", {.dtype = DType::kF32});
    EXPECT_EQ(refusal(dir / "out"), "");
    const ModelDiff diff =
        diff_models(folder(kind) + "/expected.safetensors", dir / "out/model.safetensors");
    EXPECT_TRUE(diff.differences.empty()) << kind;
    EXPECT_GT(diff.tensors, 10);
  }
}

// Experts in blocks of 4-bit floats, (experts, out, in), are written as numbers, (experts, in,
// out).
TEST(QuantizedModel, BlocksOfFourBitFloats) {
  const HfModel model(folder("mxfp4"));
  model.check(model.config());
  const ScratchDirectory dir;
  write_hf_directory(model, dir / "out", {.dtype = DType::kF32});
  EXPECT_EQ(refusal(dir / "out"), "");
  EXPECT_TRUE(HfModel(dir / "out").config() == model.config());
  const SafetensorsReader expected(folder("mxfp4") + "/expected.safetensors"),
      found(dir / "out/model.safetensors");
  EXPECT_EQ(found.entries().size(), expected.entries().size());
  for (const SafetensorsEntry& e : expected.entries())
    EXPECT_EQ(compare_exact(found.tensor(e.name), expected.tensor(e.name)), "") << e.name;
  // A rank's rows and columns of one expert.
  const ConstTensor all = expected.tensor("model.layers.0.mlp.experts.gate_up_proj");
  const ModelParameter up{"model.layers.0.mlp.experts.1.up_proj.weight", {32, 64}, false};
  const TensorBox box{{3, 30}, {5, 20}};
  std::vector<float> part(static_cast<size_t>(box.numel()));
  model.read(model.config(), up, box, 0, Tensor(part.data(), DType::kF32, Shape{box.numel()}));
  for (int64_t k = 0; k < box.numel(); ++k) {
    const int64_t row = 3 + k / 20, column = 30 + k % 20;
    EXPECT_EQ(part[static_cast<size_t>(k)], all.as<float>()[(64 + column) * 64 + 2 * row + 1]);
  }
}

// The directory with a changed quantization_config.
std::string changed(const std::string& kind, const ScratchDirectory& dir,
                    const nlohmann::json& settings) {
  fs::copy(folder(kind), dir.path(),
           fs::copy_options::overwrite_existing | fs::copy_options::recursive);
  auto json = read_json_file<nlohmann::json>(dir / "config.json");
  json["quantization_config"].update(settings);
  std::ofstream(dir / "config.json") << json.dump();
  return refusal(dir.path());
}

TEST(QuantizedModel, WhatDoesNotFitIsRefused) {
  const ScratchDirectory dir;
  const auto expect_says = [](const std::string& message, const std::string& part) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  expect_says(changed("gptq", dir, {{"bits", 3}}), "bits: 3 bits are not supported");
  expect_says(changed("gptq", dir, {{"bits", 8}}), "expected (");
  expect_says(changed("awq", dir, {{"version", "gemv"}}), "version: \"gemv\" is not available");
  expect_says(changed("awq", dir, {{"group_size", 32}}), "groups of 32 inputs");
  expect_says(changed("awq", dir, {{"group_size", 0}}), "group_size: is 0");
  expect_says(changed("fp8", dir, {{"weight_block_size", nullptr}}), "weight_block_size");
  expect_says(changed("fp8", dir, {{"weight_block_size", {16, 16}}}), "weight_scale_inv is (");
  expect_says(changed("fp8", dir, {{"quant_method", "bitsandbytes"}}), "is not supported");
}

// The directory with changes of the only group of its quantization_config: in the group itself, or
// with "weights" in its weights.
std::string changed_group(const std::string& kind, const nlohmann::json& changes) {
  const ScratchDirectory dir;
  const auto config = read_json_file<nlohmann::json>(folder(kind) + "/config.json");
  nlohmann::json groups = config["quantization_config"]["config_groups"];
  groups["group_0"].merge_patch(changes);
  return changed(kind, dir, {{"config_groups", groups}});
}

TEST(CompressedTensors, ScalesOfAnyShape) {
  // ct_int8 has a scale for each matrix; ct_fp8 one for each output, which may also be a vector.
  EXPECT_EQ(changed_group("ct_fp8", nlohmann::json::object()), "");
  EXPECT_EQ(changed_group("ct_fp8",
                          {{"weights", {{"strategy", "block"}, {"block_structure", {1, 1000}}}}}),
            "");
  EXPECT_EQ(changed_group("ct_int4", {{"weights", {{"actorder", "weight"}}}}), "");
  EXPECT_EQ(changed_group("ct_fp8", {{"input_activations", {{"dynamic", true}, {"num_bits", 8}}}}),
            "");
}

TEST(CompressedTensors, WhatIsNotReadIsNamed) {
  const auto expect_says = [](const std::string& message, const std::string& part) {
    EXPECT_NE(message.find("quantization_config."), std::string::npos) << message;
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  const auto weights = [](const char* kind, const char* key, const nlohmann::json& value) {
    return changed_group(kind, {{"weights", {{key, value}}}});
  };
  const std::string group = "config_groups.group_0.";
  expect_says(weights("ct_int4", "num_bits", 3),
              group + "weights.num_bits: 3 bits are not supported");
  expect_says(weights("ct_int4", "type", "float"), group + "weights.type: \"float\" does not go");
  expect_says(weights("ct_fp8", "type", "int"), group + "weights.type: \"int\" does not go");
  expect_says(weights("ct_int4", "strategy", "tensor_group"), group + "weights.strategy");
  expect_says(weights("ct_int4", "group_size", 0), group + "weights.group_size: must be");
  expect_says(weights("ct_int4", "actorder", "group"), group + "weights.actorder: \"group\"");
  expect_says(weights("ct_int4", "dynamic", true), group + "weights.dynamic");
  expect_says(weights("ct_int8", "symmetric", false), group + "weights.symmetric");
  expect_says(weights("ct_int4", "new_key", 1), group + "weights.new_key: unknown key (value 1)");
  expect_says(changed_group("ct_fp8", {{"input_activations", {{"dynamic", false}}}}),
              group + "input_activations.dynamic: false");
  expect_says(changed_group("ct_fp8", {{"output_activations", {{"num_bits", 8}}}}),
              group + "output_activations");
  const ScratchDirectory dir;
  expect_says(changed("ct_int4", dir, {{"format", "marlin-24"}}), "format: \"marlin-24\"");
  expect_says(changed("ct_int4", dir, {{"kv_cache_scheme", {{"num_bits", 8}}}}), "kv_cache_scheme");
  expect_says(changed("ct_int4", dir, {{"sparsity_config", {{"format", "sparse-24-bitmask"}}}}),
              "sparsity_config");
  nlohmann::json two = read_json_file<nlohmann::json>(
      folder("ct_int4") + "/config.json")["quantization_config"]["config_groups"];
  two["group_1"] = two["group_0"];
  EXPECT_EQ(changed("ct_int4", dir, {{"config_groups", two}}), "");
  two["group_1"]["weights"]["group_size"] = 4;
  expect_says(changed("ct_int4", dir, {{"config_groups", two}}),
              "group_1.weights: are quantized in another way");
}

TEST(CompressedTensors, TensorsThatDoNotFitAreNamed) {
  const auto said = [](const char* kind, const char* key, const nlohmann::json& value) {
    return changed_group(kind, {{"weights", {{key, value}}}});
  };
  const auto expect_says = [](const std::string& message, const std::string& part) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  expect_says(said("ct_int4", "group_size", 4), "weight_scale is (");
  expect_says(said("ct_int4", "num_bits", 8), "weight_packed is (");
  expect_says(said("ct_int4", "symmetric", false), "weight_zero_point is missing");
  expect_says(said("ct_int4_zeros", "symmetric", true),
              "weight_zero_point is present, but weights.symmetric is true");
  expect_says(said("ct_fp8", "strategy", "tensor"), "weight_scale is (");
}

}  // namespace
}  // namespace trireme::test::test_quantized_model
