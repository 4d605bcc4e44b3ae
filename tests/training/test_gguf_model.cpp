// GGUF files as models: written from a HuggingFace directory and read back, all families that llama.cpp and we
// share, with what its files store in another order.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "engine/text/gguf_tokenizer.h"
#include "parallel/comm/world.h"
#include "tests/support/compare.h"
#include "tests/support/scratch_directory.h"
#include "tests/training/hf_directory.h"
#include "training/checkpoint_model.h"
#include "training/loaded_model.h"
#include "training/model_diff.h"
#include "transformer/gguf_model.h"
#include "transformer/hf_model.h"

namespace trireme::test {
namespace {

// What such files do not say.
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

// llama.cpp's rotary embedding turns elements 2 i and 2 i + 1 of a head, HuggingFace's i and i + D / 2.
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
    // Rows of 24 and 40 are no whole blocks of Q8_0: they stay F16.
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

TEST(GgufModel, WhatItCannotSayIsRefused) {
  const ScratchDirectory dir;
  HfFiles("llama_variant", DType::kF32).write(dir / "hf");
  try {
    write_gguf(HfModel(dir / "hf"), dir / "x.gguf", {.type = "F32"});
    ADD_FAILURE() << "biases of the MLP";
  } catch (const InputError& e) {
    EXPECT_NE(std::string(e.what()).find("mlp_bias"), std::string::npos) << e.what();
  }
  EXPECT_FALSE(std::filesystem::exists(dir / "x.gguf"));
}

}  // namespace
}  // namespace trireme::test
