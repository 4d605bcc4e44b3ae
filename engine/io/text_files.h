// Text files with documents, plain or compressed.
//
//   .jsonl, .json     one JSON object a line; the document is the string under `json_key`
//   .json             or one array of such objects, where "[" is the file's first character
//   anything else     the whole file is one document
//   + .gz, .zst       the same, compressed
//
// Paths are taken in the order given; a folder stands for all its regular files, recursively,
// sorted by path, hidden ones left out. Empty files are left out. A file reached twice (symbolic
// links) is listed once.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trireme {

struct TextFile {
  enum class Compression { kNone, kGzip, kZstd };
  std::string path;
  bool json_lines = false;
  bool may_be_array = false;  // with json_lines
  Compression compression = Compression::kNone;
  int64_t bytes = 0;  // on disk
};

// The files that `paths` stand for, at least one. InputError for a path that is missing or leads to
// no file, for a folder without text, and where all files are empty.
std::vector<TextFile> list_text_files(const std::vector<std::string>& paths);

}  // namespace trireme
