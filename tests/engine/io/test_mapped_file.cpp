#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>

#include "engine/core/error.h"
#include "engine/io/atomic_file.h"
#include "engine/io/mapped_file.h"
#include "engine/io/mapping_guard.h"
#include "tests/engine/io/error_message.h"
#include "tests/support/scratch_directory.h"

namespace trireme::test_mapped_file {
namespace {

using test::message_of;
namespace fs = std::filesystem;
using test::ScratchDirectory;

TEST(MappedFile, ShowsTheFileAndSurvivesItsReplacement) {
  const ScratchDirectory dir;
  write_file_atomically(dir / "file", "first");
  MappedFile mapped(dir / "file");
  write_file_atomically(dir / "file", "second");
  MappedFile moved = std::move(mapped);
  ASSERT_EQ(moved.size(), 5);
  EXPECT_EQ(static_cast<char>(moved.bytes()[4]), 't');
  write_file_atomically(dir / "empty", "");
  EXPECT_EQ(MappedFile(dir / "empty").size(), 0);
  EXPECT_THROW(MappedFile(dir / "absent"), InputError);
  EXPECT_THROW(MappedFile(dir / "."), InputError);
}

// Opening a FIFO would block until a process writes to it.
TEST(MappedFile, IsNoFifo) {
  const ScratchDirectory dir;
  ASSERT_EQ(mkfifo((dir / "fifo").c_str(), 0600), 0);
  EXPECT_NE(message_of([&] { MappedFile(dir / "fifo"); }).find("is a FIFO, not a file"),
            std::string::npos);
}

TEST(MappedFile, IsRefusedOnceItsFileIsShorter) {
  const ScratchDirectory dir;
  constexpr int64_t kBytes = 64 << 10;
  const auto mapped = [&](const std::string& name) {
    write_file_atomically(dir / name, std::string(kBytes, 'x'));
    return MappedFile(dir / name);
  };
  const MappedFile whole = mapped("whole"), cut = mapped("cut"), nearly = mapped("nearly");
  MappedFile gone = mapped("gone");
  const MappedFile moved = std::move(gone);
  const auto last = [](const MappedFile& file) {
    return static_cast<char>(*static_cast<const volatile std::byte*>(&file.bytes().back()));
  };
  check_mapping(cut.bytes());
  fs::resize_file(dir / "cut", 4096);
  fs::resize_file(dir / "nearly", kBytes - 1);  // within the last page: nothing faults
  fs::resize_file(dir / "gone", 0);
  EXPECT_EQ(last(cut), '\0') << "and no SIGBUS";
  EXPECT_EQ(last(moved), '\0');
  EXPECT_EQ(last(whole), 'x');
  // As long as before again: the bytes read meanwhile did not exist.
  fs::resize_file(dir / "cut", kBytes);
  for (const MappedFile* file : {&cut, &nearly, &moved})
    EXPECT_NE(message_of([&] { check_mapping(file->bytes()); }).find("it shrank from"),
              std::string::npos);
  check_mapping(whole.bytes());
  EXPECT_EQ(message_of([&] { check_mapping(cut.bytes().subspan(9000, 10)); }).substr(0, 11),
            "cannot read");
}

}  // namespace
}  // namespace trireme::test_mapped_file
