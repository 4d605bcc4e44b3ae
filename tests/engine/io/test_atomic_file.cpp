#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <string>

#include "engine/core/error.h"
#include "engine/io/atomic_file.h"
#include "tests/engine/io/error_message.h"
#include "tests/engine/io/small_disk.h"
#include "tests/support/scratch_directory.h"

namespace trireme::test_atomic_file {
namespace {

using test::message_of;
namespace fs = std::filesystem;
using test::ScratchDirectory;

TEST(AtomicFile, WritesAllAndReplacesTheOldContents) {
  const ScratchDirectory dir;
  const std::string path = dir / "file";
  for (const size_t size : {0u, 1u, 65536u, 65537u, 200001u}) {
    std::string contents(size, 'x');
    for (size_t i = 0; i < size; ++i) contents[i] = static_cast<char>('a' + i * 7 % 23);
    AtomicFile file(path);
    // Pieces of growing size cross the end of the buffer in every way.
    for (size_t at = 0, step = 1; at < size; at += step, step = step * 3 + 1) {
      file.write(std::string_view(contents).substr(at, step));
    }
    EXPECT_EQ(file.size(), static_cast<int64_t>(size));
    EXPECT_EQ(file.checksum(), checksum(std::as_bytes(std::span(contents))));
    file.commit();
    EXPECT_EQ(read_small_file(path), contents);
    EXPECT_FALSE(fs::exists(path + ".tmp"));
  }
}

TEST(AtomicFile, WithoutCommitTheOldContentsStay) {
  const ScratchDirectory dir;
  const std::string path = dir / "file";
  write_file_atomically(path, "old");
  {
    AtomicFile file(path);
    file.write("new, but the writer throws before the end");
  }
  EXPECT_EQ(read_small_file(path), "old");
  EXPECT_FALSE(fs::exists(path + ".tmp"));
}

TEST(AtomicFile, OverwritesWhatAKilledWriterLeft) {
  const ScratchDirectory dir;
  write_file_atomically(dir / "file.tmp", std::string(1000, 'z'));
  write_file_atomically(dir / "file", "short");
  EXPECT_EQ(read_small_file(dir / "file"), "short");
}

TEST(AtomicFile, RefusesASecondWriter) {
  const ScratchDirectory dir;
  AtomicFile first(dir / "file");
  EXPECT_NE(message_of([&] { AtomicFile second(dir / "file"); }).find("another process"),
            std::string::npos);
  first.write("first");
  first.commit();
  EXPECT_EQ(read_small_file(dir / "file"), "first");
}

TEST(AtomicFile, NamesWhatCannotBeCreated) {
  const ScratchDirectory dir;
  EXPECT_NE(message_of([&] { AtomicFile f(dir / "no/such/file"); }).find("no/such/file"),
            std::string::npos);
  make_directories(dir / "a/b");
  EXPECT_NE(message_of([&] { AtomicFile f(dir / "a"); }).find("directory"), std::string::npos);
  EXPECT_NE(message_of([&] { read_small_file(dir / "absent"); }).find("absent"), std::string::npos);
  write_file_atomically(dir / "big", std::string(100, 'x'));
  EXPECT_NE(message_of([&] { read_small_file(dir / "big", 99); }).find("at most 99"),
            std::string::npos);
  EXPECT_NE(message_of([&] { make_directories(dir / "big/below"); }).find("big"),
            std::string::npos);
}

TEST(AtomicFile, AFileSizeLimitIsAnErrorNotASignal) {
  const ScratchDirectory dir;
  const std::string path = dir / "file";
  write_file_atomically(path, "old");
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  rlimit small = before;
  small.rlim_cur = 100000;
  setrlimit(RLIMIT_FSIZE, &small);
  const std::string message = message_of([&] {
    AtomicFile file(path, 300000);
    for (int i = 0; i < 3; ++i) file.write(std::string(100000, 'x'));
    file.commit();
  });
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_NE(message.find("200000 more bytes"), std::string::npos) << message;
  EXPECT_NE(message.find(path), std::string::npos) << message;
  EXPECT_EQ(read_small_file(path), "old");
  EXPECT_FALSE(fs::exists(path + ".tmp"));
}

TEST(AppendWhole, TakesAllOrNothing) {
  const ScratchDirectory dir;
  const std::string path = dir / "file";
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT, 0600);
  ASSERT_EQ(append_whole(descriptor, path, "first\n"), 0);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  rlimit small = before;
  small.rlim_cur = 10;
  setrlimit(RLIMIT_FSIZE, &small);
  EXPECT_NE(append_whole(descriptor, path, "second\n"), 0);  // four of its bytes fit
  small.rlim_cur = 6;
  setrlimit(RLIMIT_FSIZE, &small);
  EXPECT_EQ(append_whole(descriptor, path, "third\n"), EFBIG);  // none of its bytes fits
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(append_whole(descriptor, path, "fourth\n"), 0);
  ::close(descriptor);
  EXPECT_EQ(read_small_file(path), "first\nfourth\n");
}

TEST(AtomicFile, AFullDiskIsNamedAndLeavesNothing) {
  const ScratchDirectory dir;
  const test::SmallDisk disk(dir / "disk", 1 << 20);
  if (!disk.mounted()) {
    GTEST_SKIP() << "mounting a tmpfs needs root; the file size limit above takes the same path";
  }
  const std::string path = disk / "file";
  write_file_atomically(path, "old");
  const std::string early = message_of([&] { AtomicFile file(path, 5 << 20); });
  const std::string late = message_of([&] {
    AtomicFile file(path);
    for (int i = 0; i < 20; ++i) file.write(std::string(100000, 'x'));
    file.commit();
  });
  EXPECT_NE(early.find("5242880 more bytes are needed"), std::string::npos) << early;
  EXPECT_NE(late.find("No space left"), std::string::npos) << late;
  EXPECT_NE(late.find("more bytes are needed"), std::string::npos) << late;
  EXPECT_EQ(read_small_file(path), "old");
  EXPECT_FALSE(fs::exists(path + ".tmp"));
}

// A user with write access to a directory could otherwise make the program write through a link to
// a file of its own user.
TEST(AtomicFile, WritesThroughNoLinkAndIntoNoFifo) {
  const ScratchDirectory dir;
  write_file_atomically(dir / "precious", "kept");
  fs::create_symlink(dir / "precious", dir / "file.tmp");
  EXPECT_NE(message_of([&] { write_file_atomically(dir / "file", "new"); }).find("symbolic link"),
            std::string::npos);
  EXPECT_EQ(read_small_file(dir / "precious"), "kept");
  ASSERT_EQ(mkfifo((dir / "other.tmp").c_str(), 0600), 0);
  EXPECT_NE(
      message_of([&] { write_file_atomically(dir / "other", "new"); }).find("not a regular file"),
      std::string::npos);
}

}  // namespace
}  // namespace trireme::test_atomic_file
