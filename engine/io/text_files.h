// Text files of documents, plain or compressed.
//
//   .jsonl, .json     one JSON object per line; the document is the string under `json_key`
//   .json             or one array of such objects, if "[" is the first character after blanks
//   anything else     the whole file is one document
//   + .gz, .zst       the same, compressed
//
// Paths are used in the order given; a folder represents all its regular files, recursively, sorted
// by path, without hidden files and folders. Empty files are skipped. A file reached twice
// (symbolic links) is listed once.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trireme {

struct TextFile {
  enum class Compression { kNone, kGzip, kZstd };
  std::string path;
  bool json_lines = false;    // .jsonl or .json
  bool may_be_array = false;  // .json
  Compression compression = Compression::kNone;
  int64_t bytes = 0;  // on disk
};

// Returns the files for `paths`, at least one. InputError for a path that is missing or neither a
// file nor a folder, for a folder without a non-empty file, if all files are empty, and if `paths`
// is empty.
std::vector<TextFile> list_text_files(const std::vector<std::string>& paths);

}  // namespace trireme
