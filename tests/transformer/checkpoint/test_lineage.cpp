// Identity of a model in files: what changes it and what does not.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/support/scratch_directory.h"
#include "tests/support/source_folder.h"
#include "transformer/checkpoint/find_checkpoint.h"
#include "transformer/checkpoint/import_model.h"
#include "transformer/checkpoint/lineage.h"
#include "transformer/formats/gguf/gguf_model.h"
#include "transformer/formats/hf/hf_model.h"

namespace trireme::test::test_lineage {
namespace {

namespace fs = std::filesystem;
const std::string kBase = test::source_folder() + "/tests/golden/peft/base";

void flip_last_byte(const std::string& path) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(-1, std::ios::end);
  const char last = static_cast<char>(file.get() ^ 1);
  file.seekp(-1, std::ios::end);
  file.put(last);
}

TEST(CheckpointLineage, ModelsAreKnownByTheirWeights) {
  const ScratchDirectory dir;
  fs::copy(kBase, dir / "copy");
  EXPECT_EQ(model_identity(dir / "copy"), model_identity(kBase));
  // Other files in the directory and the file's name do not change it.
  std::ofstream(dir / "copy/manifest.json") << "{}";
  EXPECT_EQ(model_identity(dir / "copy"), model_identity(kBase));
  flip_last_byte(dir / "copy/model.safetensors");
  EXPECT_NE(model_identity(dir / "copy"), model_identity(kBase));

  write_gguf(HfModel(kBase), dir / "a.gguf", {.type = "F32"});
  fs::copy(dir / "a.gguf", dir / "b.gguf");
  EXPECT_EQ(model_identity(dir / "b.gguf"), model_identity(dir / "a.gguf"));
  flip_last_byte(dir / "b.gguf");
  EXPECT_NE(model_identity(dir / "b.gguf"), model_identity(dir / "a.gguf"));
}

TEST(CheckpointLineage, CheckpointsAreKnownByTheirManifests) {
  const ScratchDirectory dir;
  const HfModel base(kBase);
  import_model(base, dir / "one", {});
  import_model(base, dir / "half", {.dtype = DType::kBF16});
  fs::copy(dir / "one", dir / "two", fs::copy_options::recursive);
  const auto identity = [&](const char* root) { return model_identity(find_model(dir / root)); };
  EXPECT_EQ(identity("one"), identity("two"));
  EXPECT_NE(identity("one"), identity("half"));
}

}  // namespace
}  // namespace trireme::test::test_lineage
