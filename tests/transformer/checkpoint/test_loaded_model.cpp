#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "engine/io/atomic_file.h"
#include "engine/io/safetensors.h"
#include "parallel/comm/world.h"
#include "tests/support/compare.h"
#include "tests/support/golden_models.h"
#include "tests/support/scratch_directory.h"
#include "tests/transformer/formats/hf/refusals.h"
#include "tests/transformer/formats/hf_directory.h"
#include "transformer/checkpoint/loaded_model.h"

namespace trireme::test::test_loaded_model {
namespace {

TEST(LoadedModelOfOthers, TakesADirectoryInItsTypeOrAnother) {
  const ScratchDirectory dir;
  HfFiles("llama", DType::kBF16).write(dir.path());
  const auto world = make_world({});
  LoadedModel loaded(dir.path(), world->world());
  EXPECT_EQ(loaded.bundle().dtype, DType::kBF16);
  EXPECT_TRUE(loaded.wants_special_tokens());
  LoadedModel wide(dir.path(), world->world(), DType::kF32);
  EXPECT_EQ(wide.bundle().dtype, DType::kF32);
  Ctx ctx(1, "test");
  wide.load(ctx, Layout{}, 8);
  EXPECT_EQ(wide.parameters().dtype(), DType::kF32);
}

// Error of loading a copy of a golden model, one of whose tensors has an infinite element.
std::string refusal_of_infinity(const std::string& golden, const std::string& tensor, bool allowed,
                                std::optional<DType> dtype) {
  const ScratchDirectory dir;
  std::filesystem::copy(golden_folder(golden), dir / "m");
  const std::string path = dir / "m/model.safetensors";
  std::string file = read_small_file(path);
  uint64_t size = 0;
  std::memcpy(&size, file.data(), sizeof size);
  const auto header = nlohmann::json::parse(file.substr(8, size));
  const float infinity = std::numeric_limits<float>::infinity();
  const size_t at = 8 + size + header[tensor]["data_offsets"][0].get<size_t>();
  std::memcpy(file.data() + at, &infinity, sizeof infinity);
  std::ofstream(path, std::ios::binary) << file;
  const auto world = make_world({});
  return refusal([&] {
    LoadedModel loaded(dir / "m", world->world(), dtype);
    if (allowed) loaded.allow_non_finite();
    Ctx ctx(1, "test");
    loaded.load(ctx, Layout{}, 8);
  });
}

TEST(LoadedModelOfOthers, WeightsAreFinite) {
  for (const char* tensor :
       {"model.embed_tokens.weight", "model.layers.1.mlp.gate.e_score_correction_bias"})
    for (const std::optional<DType> dtype : {std::optional<DType>(), {DType::kF64}}) {
      expect_says(refusal_of_infinity("deepseek_v3", tensor, false, dtype),
                  {"not finite", "--allow-non-finite"});
      EXPECT_EQ(refusal_of_infinity("deepseek_v3", tensor, true, dtype), "");
    }
}

TEST(LoadedModelOfOthers, OtherWeightsNeedTheirRoom) {
  EXPECT_EQ(refusal([] { check_memory_for_reload(5 << 20, 5 << 20); }), "");
  expect_says(refusal([] { check_memory_for_reload(5 << 20, (5 << 20) - 1); }),
              {"need 5.00 MiB", "and 5.00 MiB are free", "restart the server"});
  expect_says(refusal([] { check_memory_for_reload(int64_t{7} << 30, 999); }),
              {"need 7.00 GiB", "and 999 B are free"});
}

}  // namespace
}  // namespace trireme::test::test_loaded_model
