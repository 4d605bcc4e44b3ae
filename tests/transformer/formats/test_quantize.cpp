// Export of models with quantized weights: they read back within the format's bound, everything
// else is unchanged, and the report is correct.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>

#include "engine/config/parse.h"
#include "tests/support/compare.h"
#include "tests/support/golden_models.h"
#include "tests/support/scratch_directory.h"
#include "tests/transformer/formats/hf_directory.h"
#include "transformer/formats/gguf/gguf_model.h"
#include "transformer/formats/hf/hf_model.h"
#include "transformer/formats/hf/hf_writer.h"
#include "transformer/formats/quantize.h"

namespace trireme::test::test_quantize {
namespace {

namespace fs = std::filesystem;
using Method = Quantization::Method;

Json llama_config() {
  return {{"model_type", "llama"},    {"vocab_size", 61},         {"hidden_size", 256},
          {"intermediate_size", 512}, {"num_hidden_layers", 1},   {"num_attention_heads", 4},
          {"head_dim", 64},           {"num_key_value_heads", 2}, {"max_position_embeddings", 64}};
}

Json qwen_config() {
  Json json = llama_config();
  json.update({{"model_type", "qwen2_moe"},
               {"hidden_size", 128},
               {"intermediate_size", 128},
               {"num_experts", 3},
               {"num_experts_per_tok", 2},
               {"moe_intermediate_size", 128},
               {"shared_expert_intermediate_size", 128}});
  return json;
}

std::vector<float> values(const ModelSource& source, const ModelParameter& p) {
  int64_t n = 1;
  for (const int64_t size : p.shape) n *= size;
  std::vector<float> out(static_cast<size_t>(n));
  source.read(source.config(), p, whole_box(p.shape), 0, Tensor(out.data(), DType::kF32, Shape{n}));
  return out;
}

// Compares every parameter of `written` with `source`: linear weights within `share` of the root
// mean square, the others equal. Returns the number of linear ones.
int64_t expect_near(const ModelSource& written, const ModelSource& source, double share) {
  EXPECT_TRUE(written.config() == source.config());
  written.check(written.config());
  int64_t linear = 0;
  for (const ModelParameter& p : model_parameters(source.config())) {
    const std::vector<float> was = values(source, p), is = values(written, p);
    if (!is_linear_weight(source.config(), p)) {
      EXPECT_EQ(is, was) << p.name;
      continue;
    }
    ++linear;
    RoundingError error;
    error.add(was, is);
    EXPECT_GT(error.relative(), 0) << p.name;
    EXPECT_LT(error.relative(), share) << p.name;
  }
  return linear;
}

// RMS error for normal values: half a step of 2^-3 (fp8), or of the range of the values that share
// a scale, uniform: 1 / sqrt(3) of half a step. The largest of 128 normal values is about 2.7
// standard deviations.
struct Bound {
  Quantization quantization;
  double share;
};
const Bound kBounds[] = {{{.method = Method::kFp8}, 1.0 / 16},
                         {{.method = Method::kGptq, .bits = 4}, 1.2 * 2.7 / 7.5 / 3.46},
                         {{.method = Method::kGptq, .bits = 8}, 1.2 * 2.7 / 127.5 / 3.46}};

TEST(Quantize, DirectoriesReadBack) {
  for (const Json& json : {llama_config(), qwen_config()}) {
    const ScratchDirectory dir;
    HfFiles::random(json, DType::kBF16).write(dir / "hf");
    const HfModel source(dir / "hf");
    for (const Bound& bound : kBounds) {
      const std::string name = quantization_name(bound.quantization), out = dir / name;
      SCOPED_TRACE(concat(json["model_type"].get<std::string>(), " ", name));
      const HfWritten written = write_hf_directory(
          source, out,
          {.dtype = {}, .max_shard_bytes = 60'000, .quantization = bound.quantization});
      EXPECT_GT(written.files, 2);
      const HfModel model(out);
      const int64_t linear = expect_near(model, source, bound.share);
      const auto& kinds = written.report.kinds;
      ASSERT_EQ(kinds.size(), 2U);
      EXPECT_EQ(kinds.at(name).tensors, linear);
      EXPECT_LT(kinds.at(name).worst, bound.share);
      EXPECT_GE(kinds.at(name).worst, kinds.at(name).error.relative());
      EXPECT_EQ(kinds.at("bfloat16").error.squared_error, 0);
      EXPECT_EQ(kinds.at("bfloat16").before, kinds.at("bfloat16").after);
      int64_t in_files = 0;
      const SafetensorsDirectory written_files(out);
      for (const SourceTensor& t : written_files.tensors()) in_files += t.bytes;
      EXPECT_EQ(kinds.at(name).after + kinds.at("bfloat16").after, in_files);
      EXPECT_EQ(written.bytes, in_files);
      // Values are packed as the configuration defines, next to their scales.
      const Json config = parse_json_file(out + "/config.json");
      EXPECT_EQ(config["torch_dtype"], "bfloat16");
      const Json q = config["quantization_config"];
      const bool gptq = name.starts_with("GPTQ");
      EXPECT_EQ(q["quant_method"], gptq ? "gptq" : "fp8");
      // Names the modules that other programs would take for linear layers.
      const bool experts = json["model_type"] != "llama";
      const char* const routers = "model.layers.0.mlp.gate";
      if (gptq) {
        EXPECT_EQ(q["bits"], bound.quantization.bits);
        EXPECT_EQ(q["group_size"], 128);
        EXPECT_EQ(q.contains("dynamic"), experts);
        if (experts) {
          EXPECT_TRUE(q["dynamic"].contains(R"(-:^model\.layers\.0\.mlp\.gate$)"));
        }
      } else {
        const auto kept = q["modules_to_not_convert"].get<std::vector<std::string>>();
        EXPECT_EQ(kept.size(), experts ? 3U : 1U);
        EXPECT_EQ(kept.front(), "lm_head");
        EXPECT_EQ(std::ranges::count(kept, routers), experts ? 1 : 0);
      }
      EXPECT_THROW(write_hf_directory(source, out, {.quantization = bound.quantization}),
                   InputError);
      EXPECT_THROW(write_hf_directory(model, dir / "twice", {.quantization = bound.quantization}),
                   InputError);
      EXPECT_THROW(write_gguf(model, dir / "twice.gguf", {.linear = "Q8_0"}), InputError);
    }
  }
}

TEST(Quantize, GgufFilesReadBack) {
  const ScratchDirectory dir;
  HfFiles::random(llama_config(), DType::kBF16).write(dir / "hf");
  const HfModel source(dir / "hf");
  // Ranges in standard deviations: the largest of 32 normal values is about 2.07, of 16 1.77; the
  // scales of K types are not exact.
  for (const auto& [type, share] : {std::pair{"Q8_0", 1.2 * 2.07 / 127 / 3.46},
                                    {"Q4_0", 1.2 * 2.07 / 8 / 3.46},
                                    {"Q4_K", 1.2 * 4.1 / 15 / 3.46},
                                    {"Q6_K", 1.2 * 1.9 / 32 / 3.46}}) {
    SCOPED_TRACE(type);
    const std::string out = concat(dir.path(), "/", type, ".gguf");
    const GgufWritten written = write_gguf(source, out, {.type = "BF16", .linear = type});
    EXPECT_EQ(written.bytes, static_cast<int64_t>(fs::file_size(out)));
    const GgufModel model(out);
    ModelConfig config = source.config();
    config.initializer_range = model.config().initializer_range;
    EXPECT_TRUE(model.config() == config);
    for (const ModelParameter& p : model_parameters(source.config())) {
      const SourceTensor& t = *model.tensors().find(gguf_place(config, p.name).tensor);
      const bool linear = is_linear_weight(config, p);
      EXPECT_EQ(t.dtype_name, linear ? type : p.shape.size() == 1 ? "F32" : "BF16") << p.name;
      RoundingError error;
      error.add(values(source, p), values(model, p));
      EXPECT_LE(error.relative(), linear ? share : 0) << p.name;
    }
    EXPECT_EQ(written.report.kinds.at(type).tensors, 7);
    EXPECT_GT(written.report.kinds.at(type).worst, 0);
  }
}

// Rows of 96 are not whole blocks of 256 nor of 128 values.
TEST(Quantize, WhatDoesNotFitFallsBack) {
  const ScratchDirectory dir;
  Json json = llama_config();
  json["intermediate_size"] = 96;
  HfFiles::random(json, DType::kBF16).write(dir / "hf");
  const HfModel source(dir / "hf");
  const std::string down = "model.layers.0.mlp.down_proj.weight";
  write_hf_directory(source, dir / "gptq", {.quantization = Quantization{.method = Method::kGptq}});
  const HfModel gptq(dir / "gptq");
  gptq.check(gptq.config());
  EXPECT_EQ(gptq.tensors().find(down)->dtype_name, "BF16");
  EXPECT_TRUE(gptq.tensors().find("model.layers.0.mlp.up_proj.weight")->quantized);
  const Json config = parse_json_file(dir / "gptq/config.json");
  EXPECT_TRUE(
      config["quantization_config"]["dynamic"].contains(R"(-:^model\.layers\.0\.mlp\.down_proj$)"));
  EXPECT_FALSE(
      config["quantization_config"]["dynamic"].contains(R"(-:^model\.layers\.0\.mlp\.up_proj$)"));
  write_gguf(source, dir / "x.gguf", {.type = "BF16", .linear = "Q4_K"});
  const GgufFile file(dir / "x.gguf");
  EXPECT_EQ(file.find("blk.0.ffn_down.weight")->dtype_name, "Q8_0");
  EXPECT_EQ(file.find("blk.0.ffn_up.weight")->dtype_name, "Q4_K");
}

std::string refusal(const std::function<void()>& f) {
  try {
    f();
  } catch (const InputError& e) {
    return e.what();
  }
  return "";
}

TEST(Quantize, RoutersAreNoLinearLayers) {
  const auto linear = [](const char* model, const std::string& part) {
    const HfModel source(golden_folder(model));
    for (const ModelParameter& p : model_parameters(source.config()))
      if (p.name == "model.layers.1." + part) return is_linear_weight(source.config(), p);
    ADD_FAILURE() << model << " has no " << part;
    return false;
  };
  EXPECT_FALSE(linear("gpt_oss", "mlp.router.weight"));
  EXPECT_FALSE(linear("granitemoe", "block_sparse_moe.router.layer.weight"));
  EXPECT_FALSE(linear("mixtral", "block_sparse_moe.gate.weight"));
  EXPECT_TRUE(linear("gpt_oss", "mlp.experts.0.gate_proj.weight"));
}

TEST(Quantize, WhatCannotBeIsRefused) {
  const ScratchDirectory dir;
  const Quantization fp8{.method = Method::kFp8}, gptq{.method = Method::kGptq};
  HfFiles files = HfFiles::random(llama_config(), DType::kF32);
  double& value = files.tensors["model.layers.0.mlp.up_proj.weight"].values[5];
  const auto write = [&](double x, const auto& action) {
    value = x;
    files.write(dir / "hf");
    const HfModel source(dir / "hf");
    return refusal([&] { action(source); });
  };
  const auto to_fp8 = [&](const HfModel& m) {
    write_hf_directory(m, dir / "fp8", {.quantization = fp8});
  };
  const auto to_gptq = [&](const HfModel& m) {
    write_hf_directory(m, dir / "gptq", {.quantization = gptq});
  };
  const auto to_gguf = [&](const HfModel& m) { write_gguf(m, dir / "x.gguf", {.linear = "Q4_0"}); };
  EXPECT_NE(
      write(std::numeric_limits<double>::quiet_NaN(), to_fp8).find("up_proj.weight\" holds nan"),
      std::string::npos);
  EXPECT_NE(
      write(std::numeric_limits<double>::infinity(), to_gguf).find("ffn_up.weight\" holds inf"),
      std::string::npos);
  EXPECT_NE(write(1e6, to_gptq).find("too large"), std::string::npos);
  EXPECT_NE(write(1e6, to_gguf).find("too large"), std::string::npos);
  EXPECT_FALSE(fs::exists(dir / "x.gguf"));
  EXPECT_FALSE(fs::exists(dir / "fp8/config.json"));
  HfFiles("gpt2", DType::kF32).write(dir / "gpt2");
  EXPECT_NE(refusal([&] { to_fp8(HfModel(dir / "gpt2")); }).find("(in, out)"), std::string::npos);
  for (const char* stacked : {"gpt_oss", "granitemoe"})
    EXPECT_NE(refusal([&] {
                to_fp8(HfModel(golden_folder(stacked)));
              }).find("holds the experts of a layer in one tensor"),
              std::string::npos)
        << stacked;
}

}  // namespace
}  // namespace trireme::test::test_quantize
