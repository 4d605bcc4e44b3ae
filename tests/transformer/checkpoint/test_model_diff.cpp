#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>

#include "tests/support/compare.h"
#include "tests/support/scratch_directory.h"
#include "tests/transformer/formats/hf_directory.h"
#include "transformer/checkpoint/model_diff.h"
#include "transformer/formats/hf/hf_model.h"
#include "transformer/formats/hf/hf_writer.h"

namespace trireme::test::test_model_diff {
namespace {

namespace fs = std::filesystem;

TEST(ModelCopies, DiffFindsWhatDiffers) {
  const ScratchDirectory dir;
  HfFiles files("llama", DType::kF32);
  files.write(dir / "a");
  files.tensors["model.norm.weight"].values[3] += 0.5;
  files.tensors["extra"] = {DType::kF32, {2}, {1, 2}};
  files.tensors["lm_head.weight"].shape = {24, 61};
  files.tensors["model.embed_tokens.weight"].dtype = DType::kBF16;
  files.write(dir / "b");
  const ModelDiff diff = diff_models(dir / "a/model.safetensors", dir / "b/model.safetensors");
  std::map<std::string, TensorDifference> found;
  for (const TensorDifference& d : diff.differences) found[d.name] = d;
  ASSERT_EQ(found.size(), 4U);
  EXPECT_EQ(found["model.norm.weight"].differing, 1);
  EXPECT_NEAR(found["model.norm.weight"].largest_absolute, 0.5, 1e-6);
  EXPECT_NE(found["extra"].what.find("only in"), std::string::npos);
  EXPECT_EQ(found["lm_head.weight"].what, "(61, 24) | (24, 61)");
  EXPECT_EQ(found["model.embed_tokens.weight"].what, "float32 | bfloat16");
  const ModelDiff rounded = diff_models(dir / "a/model.safetensors", dir / "b/model.safetensors",
                                        {.tolerance = 1.0 / 128});
  EXPECT_EQ(rounded.differences.size(), 3U) << "bfloat16 keeps 8 bits";
}

TEST(ModelCopies, DiffReportsNaNAndInfinity) {
  const ScratchDirectory dir;
  HfFiles files("llama", DType::kF32);
  files.write(dir / "a");
  const double infinity = std::numeric_limits<double>::infinity();
  auto& norm = files.tensors["model.norm.weight"].values;
  norm[1] = infinity;
  files.write(dir / "infinite");
  norm[3] = std::nan("");
  norm[5] *= 1.5;
  files.write(dir / "nan");
  const auto difference_to = [&](const char* other) {
    const ModelDiff diff = diff_models(dir / "a", dir / other, {.tolerance = 0.9});
    EXPECT_EQ(diff.differences.size(), 1U);
    return diff.differences.at(0);
  };
  const TensorDifference to_infinity = difference_to("infinite"), to_nan = difference_to("nan");
  EXPECT_EQ(to_infinity.differing, 1);
  EXPECT_EQ(to_infinity.largest_absolute, infinity);
  EXPECT_EQ(to_infinity.largest_relative, infinity);
  EXPECT_EQ(to_nan.differing, 2);
  EXPECT_TRUE(std::isnan(to_nan.largest_absolute));
  EXPECT_TRUE(std::isnan(to_nan.largest_relative));
}

// A GPT-2 from a hub has tensor names without the prefix; exports have it.
TEST(ModelCopies, DiffOfModelsIsByParameter) {
  const ScratchDirectory dir;
  HfFiles files("gpt2", DType::kF32);
  files.drop_prefix("transformer.");
  files.tensors["h.0.attn.bias"] = {DType::kF32, {2, 2}, {1, 2, 3, 4}};
  files.write(dir / "hub");
  write_hf_directory(HfModel(dir / "hub"), dir / "ours", {.dtype = DType::kF32});
  const ModelDiff same = diff_models(dir / "hub", dir / "ours");
  EXPECT_TRUE(same.differences.empty()) << same.differences.front().name;
  EXPECT_GT(same.tensors, 20);
  files.tensors["ln_f.weight"].values[1] += 0.5;
  files.write(dir / "other");
  const ModelDiff other = diff_models(dir / "other", dir / "ours");
  ASSERT_EQ(other.differences.size(), 1U);
  EXPECT_EQ(other.differences[0].name, "transformer.ln_f.weight");
  // Without a configuration only the names in the files can be compared.
  fs::remove(dir / "hub/config.json");
  EXPECT_GT(diff_models(dir / "hub", dir / "ours").differences.size(), 20U);
}

}  // namespace
}  // namespace trireme::test::test_model_diff
