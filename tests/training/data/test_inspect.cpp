#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "engine/core/error.h"
#include "tests/support/scratch_directory.h"
#include "training/data/prepare.h"

namespace trireme::test_inspect {
namespace {

using test::ScratchDirectory;

namespace fs = std::filesystem;

void put(const std::string& path, const std::string& bytes) {
  fs::create_directories(fs::path(path).parent_path());
  std::ofstream(path, std::ios::binary) << bytes;
}

TEST(Inspect, ShowsWhatIsThere) {
  const ScratchDirectory dir;
  put(dir / "a.txt", "first line\nsecond \x1b[31m line");
  put(dir / "b.txt", "b");
  prepare_data({.inputs = {dir / "a.txt", dir / "b.txt"}, .output = dir / "o"});
  const auto tokenizer = load_tokenizer("byte");
  const std::string shown = inspect_token_file(dir / "o", tokenizer.get(), 5);
  for (const std::string part :
       {"uint16", "tokens        29", "documents     2 (tokens: shortest 1, median 28, longest 28)",
        "largest id    116", "\"first line\\nsecond \\x1b[31m line\"",
        "document 1 (1 tokens): \"b\""}) {
    EXPECT_NE(shown.find(part), std::string::npos) << part << " not in\n" << shown;
  }
  EXPECT_NE(inspect_token_file(dir / "o", nullptr, 1).find("102 105 114"), std::string::npos);
  put(dir / "m.txt", "other text for a small model, other text for a small model, and more\n");
  std::fstream(dir / "o.bin", std::ios::in | std::ios::out | std::ios::binary) << "\xff\xff";
  EXPECT_THROW(inspect_token_file(dir / "o", tokenizer.get(), 1), InputError);
}

}  // namespace
}  // namespace trireme::test_inspect
