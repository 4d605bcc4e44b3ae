// Inputs that are no files, and a file that becomes shorter while it is read: errors that name
// them, at once.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <functional>

#include "engine/io/checksum.h"
#include "engine/io/file_identity.h"
#include "engine/io/gguf.h"
#include "engine/io/input_file.h"
#include "engine/io/safetensors.h"
#include "engine/io/text_reader.h"
#include "engine/io/token_file.h"
#include "tests/support/scratch_directory.h"

namespace trireme::test_input_file {
namespace {

using test::ScratchDirectory;
namespace fs = std::filesystem;

std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const InputError& error) {
    return error.what();
  }
  return "no error";
}

// One entry of each kind that is no file, by its name.
void make_kinds(const ScratchDirectory& dir) {
  ASSERT_EQ(mkfifo((dir / "a FIFO").c_str(), 0600), 0);
  fs::create_directory(dir / "a directory");
  fs::create_symlink("/dev/null", dir / "a device");
  const int listener = socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = dir / "a socket";
  ASSERT_LT(path.size(), sizeof address.sun_path);
  std::memcpy(address.sun_path, path.c_str(), path.size());
  EXPECT_EQ(bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  close(listener);
}

TEST(InputFile, WhatIsNoFileIsNamedAtOnce) {
  const ScratchDirectory dir;
  make_kinds(dir);
  const std::vector<std::pair<const char*, std::function<void(const std::string&)>>> readers = {
      {"require_regular_file", [](const std::string& path) { require_regular_file(path); }},
      {"require_file_or_pipe", [](const std::string& path) { require_file_or_pipe(path); }},
      {"open_regular_file", [](const std::string& path) { open_regular_file(path); }},
      {"read_small_file", [](const std::string& path) { read_small_file(path); }},
      {"MappedFile", [](const std::string& path) { MappedFile{path}; }},
      {"SafetensorsReader", [](const std::string& path) { SafetensorsReader{path}; }},
      {"GgufFile", [](const std::string& path) { GgufFile{path}; }},
      {"file_identity", [](const std::string& path) {
         ChecksumStream sum;
         add_file_identity(sum, path, FileReading::kWhole);
       }}};
  for (const char* kind : {"a FIFO", "a directory", "a device", "a socket"})
    for (const auto& reader : readers)
      EXPECT_EQ(error_of([&] { reader.second(dir / kind); }),
                concat("cannot read ", dir / kind, ": it is ", kind, ", not a file"))
          << reader.first;
  for (const char* kind : {"a FIFO", "a device", "a socket"})  // a folder stands for its files
    EXPECT_EQ(error_of([&] { list_text_files({dir / kind}); }),
              concat("cannot read ", dir / kind, ": it is ", kind, ", not a file"));
  fs::create_symlink(dir / "a FIFO", dir / "x.idx");
  write_file_atomically(dir / "x.bin", "");
  EXPECT_EQ(error_of([&] { TokenFile(dir / "x"); }),
            concat("cannot read ", dir / "x.idx", ": it is a FIFO, not a file"));
}

// What a shell hands over as /dev/stdin or <(command).
TEST(InputFile, APipeWithoutANameIsReadWhereOnePassIsEnough) {
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe(ends.data()), 0);
  const std::string path = concat("/dev/fd/", ends[0]);
  EXPECT_EQ(error_of([&] { require_file_or_pipe(path); }), "no error");
  EXPECT_EQ(error_of([&] { require_regular_file(path); }),
            concat("cannot read ", path, ": it is a FIFO, not a file"));
  close(ends[0]);
  close(ends[1]);
  const ScratchDirectory dir;
  write_file_atomically(dir / "file", "x");
  EXPECT_EQ(error_of([&] { require_file_or_pipe(dir / "file"); }), "no error");
  EXPECT_EQ(error_of([&] { require_file_or_pipe(dir / "absent"); }), "no error");
}

TEST(ShrinkingFile, IsNamedByWhatReadsItWhole) {
  const ScratchDirectory dir;
  write_file_atomically(dir / "tokenizer.json", "0123456789");
  const int descriptor = open_regular_file(dir / "tokenizer.json");
  fs::resize_file(dir / "tokenizer.json", 4);
  const std::string said = error_of([&] { read_exactly(descriptor, 10, "tokenizer.json"); });
  EXPECT_EQ(said.substr(0, 67),
            "cannot read tokenizer.json: its 10 bytes have become fewer while it");
  close(descriptor);
}

}  // namespace
}  // namespace trireme::test_input_file
