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

// A run without checkpoint.load: the folder of all runs is not taken for its base.
TEST(CheckpointLineage, ABaseIsNotSoughtAtAnEmptyPath) {
  const ScratchDirectory dir;
  const std::string gone = dir / "gone";
  const float value = 1;
  const CheckpointPart part{.kind = "parameter",
                            .name = "w",
                            .shape = {1},
                            .box = {},
                            .data = ConstTensor(&value, DType::kF32, Shape{1})};
  CheckpointLineage lineage;
  lineage.base = gone;
  lineage.base_identity = "0123456789abcdef";
  const auto refusal_of = [&](const CheckpointLineage& saved) {
    const SavedCheckpoint checkpoint = save_checkpoint(
        {.root = dir / "runs/one/checkpoints"}, {part}, {{"origin", lineage_to_json(saved)}});
    try {
      return find_base(checkpoint.directory, "");
    } catch (const InputError& error) {
      return std::string(error.what());
    }
  };
  for (const std::string& identity : {lineage.base_identity, std::string()}) {
    lineage.base_identity = identity;
    const std::string why = refusal_of(lineage);
    EXPECT_NE(why.find("was trained with base model " + gone), std::string::npos) << why;
    EXPECT_EQ(why.find("is another model"), std::string::npos) << why;
  }
}

}  // namespace
}  // namespace trireme::test::test_lineage
