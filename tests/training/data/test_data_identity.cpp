// Token files are identified by their content, not by their path.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/io/token_file.h"
#include "tests/support/scratch_directory.h"
#include "training/data/data_identity.h"

namespace trireme::test_data_identity {
namespace {

using test::ScratchDirectory;

void write_tokens(const std::string& prefix, int32_t first, int64_t count = 100) {
  TokenFileWriter writer(prefix, TokenType::kU16);
  std::vector<int32_t> tokens(static_cast<size_t>(count), 7);
  tokens.front() = first;
  writer.add_document(tokens);
  writer.commit();
}

DataConfig reading(const std::string& train, const std::string& valid = "") {
  DataConfig data;
  data.split.clear();
  data.train = {{1.0, train}};
  if (!valid.empty()) data.valid = {{"", {{1.0, valid}}}};
  return data;
}

TEST(DataIdentity, StaysWhereFilesMoveAndChangesWithATokenOrALength) {
  const ScratchDirectory dir;
  std::filesystem::create_directories(dir / "other");
  write_tokens(dir / "train", 3);
  write_tokens(dir / "other/train", 3);
  const auto saved =
      data_identity_from_json(data_identity_to_json(data_identity(reading(dir / "train"))));
  EXPECT_EQ(changed_file(saved, data_identity(reading(dir / "other/train"))), "");
  for (const auto& [first, count] : {std::pair{4, 100}, std::pair{3, 101}}) {
    write_tokens(dir / "other/train", first, count);
    const auto now = data_identity(reading(dir / "other/train"));
    const std::string changed = changed_file(saved, now);
    EXPECT_NE(changed.find(dir / "other/train"), std::string::npos) << changed;
    EXPECT_NE(changed.find(text(saved[0])), std::string::npos) << changed;
    EXPECT_NE(changed.find(text(now[0])), std::string::npos) << changed;
  }
}

TEST(DataIdentity, OfALargeFileSamplesAreRead) {
  const ScratchDirectory dir;
  write_tokens(dir / "train", 3, 2'000'000);
  const auto before = data_identity(reading(dir / "train"));
  {
    std::fstream bin(dir / "train.bin", std::ios::in | std::ios::out | std::ios::binary);
    bin.seekp(-1, std::ios::end);
    bin.put(9);
  }
  EXPECT_NE(changed_file(before, data_identity(reading(dir / "train"))), "");
}

TEST(DataIdentity, AValidationSetOfAnotherNameIsAnotherSet) {
  const ScratchDirectory dir;
  write_tokens(dir / "train", 3);
  write_tokens(dir / "a", 4);
  write_tokens(dir / "b", 5);
  const auto saved = data_identity(reading(dir / "train", dir / "a"));
  EXPECT_EQ(changed_file(saved, data_identity(reading(dir / "train", dir / "b"))), "");
  EXPECT_EQ(changed_file(saved, data_identity(reading(dir / "train"))), "");
  write_tokens(dir / "a", 6);
  const std::string changed = changed_file(saved, data_identity(reading(dir / "train", dir / "a")));
  EXPECT_NE(changed.find("data.valid_data_path"), std::string::npos) << changed;
  EXPECT_EQ(changed_file({}, saved), "");
}

}  // namespace
}  // namespace trireme::test_data_identity
