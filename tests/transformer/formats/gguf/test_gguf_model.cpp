// GGUF files as models: written from a HuggingFace directory and read back, for all families that
// llama.cpp and Trireme share, including those with another order of elements.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <numbers>

#include "engine/text/gguf_tokenizer.h"
#include "parallel/comm/world.h"
#include "tests/support/compare.h"
#include "tests/support/golden_models.h"
#include "tests/support/scratch_directory.h"
#include "tests/transformer/formats/hf_directory.h"
#include "transformer/checkpoint/import_model.h"
#include "transformer/checkpoint/loaded_model.h"
#include "transformer/checkpoint/model_diff.h"
#include "transformer/families/config_json.h"
#include "transformer/formats/gguf/gguf_model.h"
#include "transformer/formats/hf/hf_model.h"

namespace trireme::test::test_gguf_model {
namespace {

// Resets the settings that GGUF files do not contain.
ModelConfig without_training(ModelConfig config) {
  const ModelConfig defaults;
  config.initializer_range = defaults.initializer_range;
  config.residual_dropout = config.embedding_dropout = config.attention_dropout = 0;
  config.moe.balance_coef = config.moe.z_coef = 0;
  config.bos_token_id = config.eos_token_id = -1;
  return config;
}

TEST(GgufModel, WrittenFromADirectoryItIsTheSameModel) {
  for (const char* name : {"gpt2", "llama", "mixtral"}) {
    SCOPED_TRACE(name);
    const ScratchDirectory dir;
    HfFiles(name, DType::kF32).write(dir / "hf");
    const HfModel source(dir / "hf");
    write_gguf(source, dir / "x.gguf", {.type = "F32"});
    const GgufModel file(dir / "x.gguf");
    EXPECT_EQ(model_config_to_json(without_training(file.config())).dump(2),
              model_config_to_json(without_training(source.config())).dump(2));
    EXPECT_EQ(file.dtype(), DType::kF32);
    const ModelDiff diff = diff_models(dir / "hf", dir / "x.gguf");
    EXPECT_EQ(diff.tensors, std::ssize(model_parameters(source.config())));
    for (const TensorDifference& d : diff.differences) ADD_FAILURE() << d.name << " " << d.what;
    import_model(file, dir / "ours", {.dtype = DType::kF32});
    EXPECT_TRUE(diff_models(dir / "hf", dir / "ours").differences.empty());
  }
}

// llama.cpp's rotary embedding rotates elements 2 i and 2 i + 1 of a head, HuggingFace's i and i +
// D / 2.
TEST(GgufModel, RowsOfQueriesAndKeysAreInterleaved) {
  const ScratchDirectory dir;
  const HfFiles files("llama", DType::kF32);
  files.write(dir / "hf");
  const HfModel source(dir / "hf");
  write_gguf(source, dir / "x.gguf", {.type = "F32"});
  const GgufFile file(dir / "x.gguf");
  const int64_t d = source.config().head_dim, c = source.config().hidden_size;
  for (const auto& [theirs, ours] :
       {std::pair{"blk.1.attn_q.weight", "q_proj"}, {"blk.1.attn_k.weight", "k_proj"}}) {
    const auto& hf = files.tensors.at(concat("model.layers.1.self_attn.", ours, ".weight"));
    std::vector<float> found(hf.values.size());
    file.read(*file.find(theirs), 0, Tensor(found.data(), DType::kF32, Shape{std::ssize(found)}));
    for (int64_t head = 0; head < hf.shape[0] / d; ++head)
      for (int64_t i = 0; i < d / 2; ++i)
        for (int64_t half = 0; half < 2; ++half)
          for (int64_t k = 0; k < c; ++k)
            ASSERT_EQ(found[static_cast<size_t>((head * d + 2 * i + half) * c + k)],
                      static_cast<float>(
                          hf.values[static_cast<size_t>((head * d + half * d / 2 + i) * c + k)]));
  }
}

TEST(GgufModel, HalfPrecisionAndBlocks) {
  const ScratchDirectory dir;
  HfFiles("llama", DType::kF32).write(dir / "hf");
  const HfModel source(dir / "hf");
  for (const auto& [type, error] : {std::pair{"F16", 1e-3}, {"BF16", 1e-2}, {"Q8_0", 1e-3}}) {
    SCOPED_TRACE(type);
    const std::string path = concat(dir.path(), "/", type, ".gguf");
    write_gguf(source, path, {.type = type});
    const GgufModel file(path);
    EXPECT_EQ(file.tensors().find("blk.0.attn_norm.weight")->dtype_name, "F32");
    // Rows of 24 and 40 are not whole blocks of Q8_0: F16 instead.
    EXPECT_EQ(file.tensors().find("blk.0.attn_q.weight")->dtype_name,
              std::string(type) == "Q8_0" ? "F16" : type);
    const ModelDiff diff = diff_models(dir / "hf", path);
    EXPECT_FALSE(diff.differences.empty());
    for (const TensorDifference& d : diff.differences) {
      EXPECT_LT(d.largest_absolute, error) << d.name;
      EXPECT_EQ(d.what.find("only in"), std::string::npos) << d.name << " " << d.what;
    }
  }
}

Json decoder(const char* type) {
  return {{"model_type", type},       {"vocab_size", 31},       {"hidden_size", 24},
          {"intermediate_size", 20},  {"num_hidden_layers", 7}, {"num_attention_heads", 4},
          {"num_key_value_heads", 2}, {"head_dim", 8},          {"max_position_embeddings", 64}};
}

Json expert_model(const char* type) {
  Json json = decoder(type);
  json.update({{"num_experts", 3}, {"num_experts_per_tok", 2}, {"moe_intermediate_size", 12}});
  if (std::string(type) == "qwen2_moe") json["shared_expert_intermediate_size"] = 16;
  if (std::string(type) == "qwen3_moe") json["norm_topk_prob"] = true;
  return json;
}

Json gemma() {
  Json json = decoder("gemma3_text");
  json.update({{"query_pre_attn_scalar", 8},
               {"sliding_window", 5},
               {"rope_local_base_freq", 500},
               {"rope_scaling", {{"rope_type", "linear"}, {"factor", 4}}}});
  return json;
}

// The file has the directory's configuration and its values within `added`: the rounding of adding
// 1 to a value and subtracting it again.
void expect_same_model(const std::string& hf, const std::string& gguf, double added = 0) {
  const HfModel source(hf);
  write_gguf(source, gguf, {.type = "F32"});
  const GgufModel file(gguf);
  EXPECT_EQ(model_config_to_json(without_training(file.config())).dump(2),
            model_config_to_json(without_training(source.config())).dump(2));
  const ModelDiff diff = diff_models(hf, gguf);
  EXPECT_EQ(diff.tensors, std::ssize(model_parameters(source.config())));
  for (const TensorDifference& d : diff.differences) {
    EXPECT_TRUE(d.what.empty() && d.name.ends_with("norm.weight")) << d.name << " " << d.what;
    EXPECT_LE(d.largest_absolute, added) << d.name;
  }
}

TEST(GgufModel, WindowsAndScaledPositions) {
  for (const char* name :
       {"llama3", "llama_linear", "llama_yarn", "mistral", "qwen2", "qwen2_window", "qwen3"}) {
    SCOPED_TRACE(name);
    const ScratchDirectory dir;
    expect_same_model(golden_folder(name), dir / "x.gguf");
  }
  // Without a window a mistral becomes a llama in GGUF.
  const ScratchDirectory dir;
  Json json = decoder("mistral");
  json["sliding_window"] = nullptr;
  HfFiles::random(json, DType::kF32).write(dir / "hf");
  write_gguf(HfModel(dir / "hf"), dir / "x.gguf", {.type = "F32"});
  EXPECT_EQ(GgufModel(dir / "x.gguf").config().family, ModelFamily::kLlama);
  EXPECT_TRUE(diff_models(dir / "hf", dir / "x.gguf").differences.empty());
  const GgufFile file(dir / "x.gguf");
  std::vector<float> q(size_t{32} * 24), read(q.size());
  const HfModel source(dir / "hf");
  source.read(source.config(), {"model.layers.0.self_attn.q_proj.weight", {32, 24}},
              whole_box({32, 24}), 0, Tensor(q.data(), DType::kF32, Shape{32 * 24}));
  file.read(*file.find("blk.0.attn_q.weight"), 0, Tensor(read.data(), DType::kF32, Shape{32 * 24}));
  EXPECT_TRUE(std::equal(read.begin() + 24, read.begin() + 48, q.begin() + 4 * 24))
      << "the second row of a head is that of its second half";
}

// Factors as published by the authors of Llama 3's paper.
TEST(GgufModel, FactorsOfFrequencies) {
  const ScratchDirectory dir;
  write_gguf(HfModel(golden_folder("llama3")), dir / "x.gguf", {.type = "F16"});
  const GgufFile file(dir / "x.gguf");
  const SourceTensor* tensor = file.find("rope_freqs.weight");
  ASSERT_NE(tensor, nullptr);
  EXPECT_EQ(tensor->dtype_name, "F32");
  std::vector<float> found(8);  // heads of 16
  file.read(*tensor, 0, Tensor(found.data(), DType::kF32, Shape{8}));
  for (size_t i = 0; i < found.size(); ++i) {
    // theta 100, factor 8, 32 original positions, low 1, high 4
    const double wavelength = 2 * std::numbers::pi * std::pow(100, static_cast<double>(i) / 8);
    const double smooth = (32 / wavelength - 1) / 3;
    const double factor = smooth >= 1 ? 1 : smooth <= 0 ? 8 : 1 / ((1 - smooth) / 8 + smooth);
    EXPECT_NEAR(found[i], factor, 1e-5 * factor) << i;
  }
  EXPECT_EQ(found.front(), 1);
  EXPECT_EQ(found.back(), 8);
}

TEST(GgufModel, ExpertsAndGemma) {
  for (const Json& json : {expert_model("qwen2_moe"), expert_model("qwen3_moe"), gemma()}) {
    SCOPED_TRACE(json["model_type"].get<std::string>());
    const ScratchDirectory dir;
    HfFiles::random(json, DType::kF32).write(dir / "hf");
    // 1 + w is rounded to a multiple of 2^-23.
    expect_same_model(dir / "hf", dir / "x.gguf", std::ldexp(1, -24));
  }
  // Experts are stacked, and the shared expert's gate is a vector.
  const ScratchDirectory dir;
  const HfFiles files = HfFiles::random(expert_model("qwen2_moe"), DType::kF32);
  files.write(dir / "hf");
  write_gguf(HfModel(dir / "hf"), dir / "x.gguf", {.type = "F16"});
  const GgufFile file(dir / "x.gguf");
  EXPECT_EQ(file.find("blk.6.ffn_down_exps.weight")->shape, (std::vector<int64_t>{3, 24, 12}));
  EXPECT_EQ(file.find("blk.6.ffn_gate_inp_shexp.weight")->shape, (std::vector<int64_t>{24}));
  EXPECT_EQ(file.find("blk.6.ffn_gate_inp.weight")->dtype_name, "F32");
  const auto& expert = files.tensors.at("model.layers.6.mlp.experts.2.down_proj.weight").values;
  std::vector<float> found(expert.size());
  file.read(*file.find("blk.6.ffn_down_exps.weight"), 2 * 24 * 12,
            Tensor(found.data(), DType::kF32, Shape{24 * 12}));
  for (size_t i = 0; i < found.size(); ++i)
    ASSERT_EQ(found[i], static_cast<float>(f16(static_cast<float>(expert[i]))));
}

// Norms in Gemma's GGUF files are 1 + w.
TEST(GgufModel, NormsOfGemma) {
  const ScratchDirectory dir;
  const HfFiles files = HfFiles::random(gemma(), DType::kBF16);
  files.write(dir / "hf");
  write_gguf(HfModel(dir / "hf"), dir / "x.gguf", {.type = "BF16"});
  const GgufFile file(dir / "x.gguf");
  for (const auto& [theirs, ours] :
       {std::pair{"output_norm", "model.norm"},
        {"blk.1.attn_q_norm", "model.layers.1.self_attn.q_norm"},
        {"blk.1.ffn_norm", "model.layers.1.pre_feedforward_layernorm"},
        {"blk.1.post_attention_norm", "model.layers.1.post_attention_layernorm"},
        {"blk.1.post_ffw_norm", "model.layers.1.post_feedforward_layernorm"}}) {
    const auto& wanted = files.tensors.at(concat(ours, ".weight")).values;
    std::vector<float> found(wanted.size());
    file.read(*file.find(concat(theirs, ".weight")), 0,
              Tensor(found.data(), DType::kF32, Shape{std::ssize(found)}));
    for (size_t i = 0; i < found.size(); ++i)
      ASSERT_EQ(found[i], 1 + static_cast<float>(bf16(static_cast<float>(wanted[i])))) << theirs;
  }
  // 8-bit values are unchanged by the conversion, unless they are very small.
  for (const TensorDifference& d :
       diff_models(dir / "hf", dir / "x.gguf", {.tolerance = 1e-30}).differences) {
    EXPECT_LE(d.largest_absolute, std::ldexp(1, -24)) << d.name;
    EXPECT_LE(d.differing, 1) << d.name;
  }
}

TEST(GgufModel, ARunTakesIt) {
  const ScratchDirectory dir;
  HfFiles("llama", DType::kF32).write(dir / "hf");
  write_gguf(HfModel(dir / "hf"), dir / "x.gguf", {.type = "F32"});
  const auto world = make_world({});
  Ctx ctx(1, "test");
  LoadedModel a(dir / "hf", world->world()), b(dir / "x.gguf", world->world());
  for (const int rank : {0, 1}) {
    const Layout layout = layout_of({.tp = 2}, rank);
    a.load(ctx, layout, 8);
    b.load(ctx, layout, 8);
    for (ParamHandle h = 0; h < std::ssize(a.parameters().specs()); ++h)
      EXPECT_EQ(to_doubles(a.parameters().value(h)), to_doubles(b.parameters().value(h)));
  }
}

std::string refusal(const std::function<void()>& f) {
  try {
    f();
  } catch (const InputError& e) {
    return e.what();
  }
  return "accepted";
}

TEST(GgufModel, WhatItCannotSayIsRefused) {
  const ScratchDirectory dir;
  const auto expect_refused = [&](const std::string& hf, const char* why) {
    const std::string message =
        refusal([&] { write_gguf(HfModel(hf), dir / "x.gguf", {.type = "F32"}); });
    EXPECT_NE(message.find(why), std::string::npos) << hf << "\n" << message;
    EXPECT_FALSE(std::filesystem::exists(dir / "x.gguf"));
  };
  HfFiles("llama_variant", DType::kF32).write(dir / "hf");
  expect_refused(dir / "hf", "mlp_bias");
  expect_refused(golden_folder("llama_dynamic"), "rope_scaling");
  expect_refused(golden_folder("llama_yarn_given"), "rope_scaling");
  expect_refused(golden_folder("qwen2_moe"), "mlp_only_layers");
  expect_refused(golden_folder("qwen3_moe"), "decoder_sparse_step");
  expect_refused(golden_folder("gemma3"), "query_pre_attn_scalar");
  for (const char* name :
       {"deepseek_v3", "kimi_k2", "smollm3", "granite", "olmo2", "olmo3", "seed_oss", "glm", "glm4",
        "glm4_moe", "minimax_m2", "phi3", "ministral3", "ernie4_5", "exaone4", "hunyuan_v1_dense",
        "gpt_oss", "granitemoe", "gemma2"})
    expect_refused(golden_folder(name), "cannot be written as GGUF");
  Json json = expert_model("qwen3_moe");
  json["norm_topk_prob"] = false;
  HfFiles::random(json, DType::kF32).write(dir / "other");
  expect_refused(dir / "other", "norm_topk_prob");
}

TEST(GgufModel, WhatIsNotComputedIsNotRead) {
  const ScratchDirectory dir;
  HfFiles::random(gemma(), DType::kF32).write(dir / "hf");
  const ModelConfig config = HfModel(dir / "hf").config();
  const auto read = [&](const std::string& key, const GgufValue& value) {
    GgufMetadata metadata = gguf_metadata(config);
    metadata[key] = value;
    {
      const std::vector<float> zeros(31 * 24);
      GgufWriter writer(dir / "x.gguf", metadata,
                        {{"token_embd.weight", gguf_type("F32"), {31, 24}}});
      writer.write(ConstTensor(zeros.data(), DType::kF32, Shape{31 * 24}));
      writer.commit();
    }
    const GgufFile file(dir / "x.gguf");
    return refusal([&] { gguf_config(file); });
  };
  EXPECT_EQ(read("gemma3.final_logit_softcapping", 0.0), "accepted");
  for (const auto& [key, value] :
       {std::pair<const char*, GgufValue>{"gemma3.final_logit_softcapping", 30.0},
        {"gemma3.rope.dimension_count", int64_t{4}},
        {"gemma3.attention.value_length", int64_t{4}},
        {"gemma3.attention.head_count", int64_t{0}},
        {"gemma3.expert_count", int64_t{4}},
        {"gemma3.rope.scaling.type", std::string("longrope")},
        {"gemma3.attention.sliding_window_pattern", std::vector<int64_t>{1, 0}},
        {"gemma3.expert_gating_func", int64_t{2}},
        {"gemma3.attention.scale", 0.25},
        {"gemma3.logit_scale", 0.5},
        {"gemma3.embedding_scale", 12.0},
        {"gemma3.residual_scale", 0.2},
        {"gemma3.attention.causal", false},
        {"gemma3.attention.clamp_kqv", 8.0},
        {"gemma3.attention.max_alibi_bias", 8.0},
        {"gemma3.use_parallel_residual", true},
        {"gemma3.attention.temperature_scale", 0.1},
        {"gemma3.rope.scaling.attn_factor", 1.5},
        {"gemma3.tomorrows_scale", 0.5},
        {"general.architecture", std::string("mamba")}}) {
    const std::string message = read(key, value);
    EXPECT_NE(message, "accepted") << key;
    const bool named =
        std::string(key).starts_with("general") || message.find(key) != std::string::npos;
    EXPECT_TRUE(named) << message;
  }
  for (const auto& [key, value] : {std::pair<const char*, GgufValue>{"gemma3.attention.scale", 0.0},
                                   {"gemma3.logit_scale", 1.0},
                                   {"gemma3.attention.causal", true},
                                   {"gemma3.rope.scaling.finetuned", true},
                                   {"general.tomorrow", 3.0},
                                   {"gemma3.vocab_size", int64_t{31}}})
    EXPECT_EQ(read(key, value), "accepted") << key;
}

// As in llama.cpp: a factor without a type is linear scaling, also under its older name.
TEST(GgufModel, AFactorWithoutATypeIsLinear) {
  const ScratchDirectory dir;
  HfFiles::random(decoder("llama"), DType::kF32).write(dir / "hf");
  const HfModel source(dir / "hf");
  const auto scaling = [&](const GgufMetadata& more) {
    GgufMetadata metadata = gguf_metadata(source.config());
    metadata.insert(more.begin(), more.end());
    {
      const std::vector<float> zeros(31 * 24);
      GgufWriter writer(dir / "x.gguf", metadata,
                        {{"token_embd.weight", gguf_type("F32"), {31, 24}}});
      writer.write(ConstTensor(zeros.data(), DType::kF32, Shape{31 * 24}));
      writer.commit();
    }
    ConfigReport report;
    const GgufFile file(dir / "x.gguf");
    const ModelConfig config = read_model_config(gguf_config(file), "", report);
    report.throw_if_errors("test");
    return config.rope_scaling;
  };
  const RopeScaling four{.type = RopeType::kLinear, .factor = 4};
  const GgufValue none = std::string("none");
  EXPECT_EQ(scaling({{"llama.rope.scaling.factor", 4.0}}), four);
  EXPECT_EQ(scaling({{"llama.rope.scale_linear", 4.0}}), four);
  EXPECT_EQ(scaling({{"llama.rope.scaling.factor", 4.0}, {"llama.rope.scale_linear", 2.0}}), four);
  EXPECT_EQ(scaling({{"llama.rope.scaling.factor", 4.0}, {"llama.rope.scaling.type", none}}),
            RopeScaling{});
  for (const double neutral : {0.0, 1.0})
    EXPECT_EQ(scaling({{"llama.rope.scaling.factor", neutral}}), RopeScaling{});
}

TEST(GgufModel, TypesThatAreNotReadAreNamedOnce) {
  const ScratchDirectory dir;
  Json json = decoder("llama");
  json["hidden_size"] = 32;
  HfFiles::random(json, DType::kF32).write(dir / "hf");
  const HfModel source(dir / "hf");
  write_gguf(source, dir / "x.gguf", {.type = "Q8_0"});
  // Replaces this type by others of at most as many bytes; only the header defines it.
  std::string bytes;
  {
    std::ifstream file(dir / "x.gguf", std::ios::binary);
    bytes.assign(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  int changed = 0;
  for (int layer = 0; layer < 7; ++layer) {
    const std::string name = concat("blk.", layer, ".attn_q.weight");
    const size_t type = bytes.find(name) + name.size() + 4 + 2 * 8;
    ASSERT_EQ(bytes[type], 8);
    bytes[type] = layer < 3 ? 3 : 6;  // Q4_1, Q5_0
    ++changed;
  }
  ASSERT_EQ(changed, 7);
  std::ofstream(dir / "x.gguf", std::ios::binary) << bytes;
  const GgufModel model(dir / "x.gguf");
  EXPECT_EQ(
      refusal([&] { model.check(model.config()); }),
      concat(dir / "x.gguf",
             ": Q4_1 in 3 tensors (blk.0.attn_q.weight, ...) is not supported; Q5_0 in 4 tensors "
             "(blk.3.attn_q.weight, ...) is not supported; supported: F32, F16, BF16, Q8_0, Q4_0, "
             "Q4_K, "
             "Q6_K; make such a file from the original with llama-quantize, or use the "
             "HuggingFace directory of this model"));
}

}  // namespace
}  // namespace trireme::test::test_gguf_model
