// Inputs that are not regular files, and files that are truncated while they are read: errors that
// name them, immediately and without SIGBUS.
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
#include "engine/io/safetensors_directory.h"
#include "engine/io/text_reader.h"
#include "engine/io/token_file.h"
#include "tests/support/scratch_directory.h"
#include "tests/support/source_folder.h"

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

// One entry of each kind that is not a regular file, by name.
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
  for (const char* kind : {"a FIFO", "a device", "a socket"})  // a folder represents its files
    EXPECT_EQ(error_of([&] { list_text_files({dir / kind}); }),
              concat("cannot read ", dir / kind, ": it is ", kind, ", not a file"));
  fs::create_symlink(dir / "a FIFO", dir / "x.idx");
  write_file_atomically(dir / "x.bin", "");
  EXPECT_EQ(error_of([&] { TokenFile(dir / "x"); }),
            concat("cannot read ", dir / "x.idx", ": it is a FIFO, not a file"));
}

// Input that a shell passes as /dev/stdin or <(command).
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
            "cannot read tokenizer.json: it shrank from 10 bytes while it was re");
  close(descriptor);
}

TEST(ShrinkingFile, IsNamedByTheReaderOfTexts) {
  const ScratchDirectory dir;
  const std::string line = "{\"text\": \"a row of oars\"}\n";
  std::string lines;
  for (int i = 0; i < 100; ++i) lines += line;
  for (const char* name : {"x.jsonl", "x.txt"}) {
    write_file_atomically(dir / name, lines);
    TextReader reader(list_text_files({dir / name}));
    fs::resize_file(dir / name, 10 * line.size());  // whole lines: otherwise intact
    const std::string said = error_of([&] {
      TextRecord record;
      while (reader.next(&record)) {
      }
    });
    EXPECT_NE(said.find(concat("it shrank from ", lines.size(), " bytes")), std::string::npos)
        << said;
  }
}

constexpr int64_t kElements = 1 << 16;

void write_weights(const std::string& path) {
  const std::vector<float> values(kElements, 0.5F);
  SafetensorsWriter writer(path, {{"w", DType::kF32, {kElements}}}, {});
  writer.write(std::as_bytes(std::span(values)));
  writer.commit();
}

// Every reader of a mapping detects the truncation, far away or within the last page, in its first
// read and in later ones.
TEST(ShrinkingFile, IsNamedByReadersOfWeights) {
  for (const int64_t cut : {int64_t{0}, int64_t{4096}, 4 * kElements}) {
    const ScratchDirectory dir;
    write_weights(dir / "model.safetensors");
    const SafetensorsReader reader(dir / "model.safetensors");
    const SafetensorsDirectory source(dir / "model.safetensors");
    fs::resize_file(dir / "model.safetensors", static_cast<uintmax_t>(cut));
    std::vector<float> out(kElements);
    const auto read = [&](int64_t count) {
      return error_of([&] {
        source.read(source.tensors()[0], kElements - count,
                    Tensor(out.data(), DType::kF32, Shape{count}));
      });
    };
    EXPECT_NE(error_of([&] { reader.tensor("w"); }).find("it shrank from"), std::string::npos);
    for (const int64_t count : {int64_t{1}, kElements})  // through the mapping, and by pread()
      EXPECT_NE(read(count).find("cannot read "), std::string::npos) << read(count);
  }
}

TEST(ShrinkingFile, IsNamedByReadersOfBlocks) {
  const ScratchDirectory dir;
  fs::copy_file(concat(test::source_folder(), "/tests/golden/gguf/blocks.gguf"), dir / "x.gguf");
  const GgufFile file(dir / "x.gguf");
  const auto bytes = fs::file_size(dir / "x.gguf");
  fs::resize_file(dir / "x.gguf", bytes - 1);
  for (const char* name : {"F32", "Q4_K"}) {
    std::vector<float> out(256);
    const std::string said = error_of([&] {
      file.read(*file.find(name), 0, Tensor(out.data(), DType::kF32, Shape{std::ssize(out)}));
    });
    EXPECT_NE(said.find("it shrank from"), std::string::npos) << name << ": " << said;
  }
}

TEST(ShrinkingFile, IsNamedByReadersOfTokens) {
  for (const char* end : {".bin", ".idx"}) {
    const ScratchDirectory dir;
    const std::vector<int32_t> tokens(1 << 14, 7);
    TokenFileWriter writer(dir / "x", TokenType::kU16);
    for (int i = 0; i < 1000; ++i) writer.add_document(std::span(tokens).first(16));
    writer.commit();
    const TokenFile file(dir / "x");
    std::vector<int32_t> out(16);
    file.copy_tokens(0, 16, out.data());
    EXPECT_EQ(out[15], 7);
    fs::resize_file(concat(dir / "x", end), 64);
    const std::string said = error_of([&] { file.copy_tokens(15'000, 16, out.data()); });
    EXPECT_NE(said.find(concat("x", end, ": it shrank ")), std::string::npos) << said;
    EXPECT_NE(said.find("it shrank from"), std::string::npos) << said;
  }
}

}  // namespace
}  // namespace trireme::test_input_file
