#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "engine/io/safetensors.h"
#include "engine/text/tokenizer.h"
#include "parallel/comm/world.h"
#include "tests/support/compare.h"
#include "tests/support/scratch_directory.h"
#include "tests/transformer/formats/hf/refusals.h"
#include "tests/transformer/formats/hf_directory.h"
#include "transformer/checkpoint/loaded_model.h"
#include "transformer/checkpoint/open_model.h"

namespace trireme::test::test_open_model {
namespace {

TEST(LoadedModelOfOthers, ANameOfAHubGetsTheCommand) {
  const auto world = make_world({});
  expect_says(refusal([&] { LoadedModel("some-org/some-model", world->world()); }),
              {"has no such model either: hf download some-org/some-model"});
}

TEST(LoadedModelOfOthers, WhatIsNearlyAModelSaysWhatIsMissing) {
  const auto world = make_world({});
  const auto said = [&](const std::string& path) {
    return refusal([&] { LoadedModel(path, world->world()); });
  };
  const ScratchDirectory dir;
  HfFiles("llama", DType::kF32).write(dir / "m");
  expect_says(said(dir / "m/model.safetensors"), {"a .safetensors file holds tensors only"});
  std::filesystem::remove(dir / "m/config.json");
  expect_says(said(dir / "m"), {"holds safetensors but no config.json"});
  std::filesystem::create_directory(dir / "adapters");
  std::ofstream(dir / "adapters/adapter_config.json") << "{}";
  expect_says(said(dir / "adapters"), {"it holds adapters", "--adapter"});
}

TEST(LoadedModelOfOthers, PointersOfGitAreNamed) {
  constexpr const char* kPointer =
      "version https://git-lfs.github.com/spec/v1\noid "
      "sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f3"
      "2b1258daaa5e2ca24d17e2393\nsize 4976698672\n";
  const ScratchDirectory dir;
  HfFiles files("llama", DType::kF32);
  files.write(dir.path());
  const auto pointer = [&](const char* name) { std::ofstream(dir / name) << kPointer; };
  pointer("model.safetensors");
  expect_says(open_refusal(dir.path()), {"model.safetensors", "git lfs pull"});
  pointer("x.gguf");
  expect_says(refusal([&] { open_model_source(dir / "x.gguf"); }), {"x.gguf", "git lfs pull"});
  for (const char* name : {"tokenizer.json", "tokenizer.model"}) {
    pointer(name);
    expect_says(refusal([&] { load_tokenizer(dir / name); }), {name, "git lfs pull"});
  }
  pointer("config.json");
  expect_says(open_refusal(dir.path()), {"config.json", "git lfs pull"});
  std::filesystem::create_directory(dir / "empty");
  const std::string none = refusal([&] { load_tokenizer(dir / "empty"); });
  expect_says(none, {"neither tokenizer.json nor tokenizer.model"});
  EXPECT_EQ(none.find("hf download"), std::string::npos) << "it is there";
}

}  // namespace
}  // namespace trireme::test::test_open_model
