// Documents out of text files (text_files.h), in a fixed order. Text must be UTF-8 without NUL
// bytes; a byte order mark is dropped. U+0000 that a JSON line spells as \u0000 is a character like
// others. Every complaint is an InputError naming the file and, where there is one, the line, and
// of an array the number of the record. An array is read in pieces: one record of it is in memory.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/io/text_files.h"

namespace trireme {

// One line, one element of an array, or one whole file, not yet checked or parsed.
struct TextRecord {
  std::string bytes;
  size_t file = 0;      // index into files()
  int64_t line = 0;     // from 1, where it begins; 0: the whole file
  int64_t element = 0;  // from 1, of an array; 0: of none
};

class TextReader {
 public:
  explicit TextReader(std::vector<TextFile> files, std::string json_key = "text");
  ~TextReader();

  // The next record, blank lines left out; false at the end. nullptr skips it unread.
  bool next(TextRecord* record);
  // The document in a record. May run on several threads at once.
  std::string document(TextRecord&& record) const;
  // "FILE:LINE", "FILE:LINE: record 3" of an array, or the file.
  std::string place(const TextRecord& record) const;

  const std::vector<TextFile>& files() const { return files_; }
  int64_t bytes_total() const { return bytes_total_; }  // on disk
  int64_t bytes_read() const;                           // on disk, of those

 private:
  class Stream;
  bool next_line(TextRecord* record);
  bool next_element(TextRecord* record);
  std::vector<TextFile> files_;
  std::string json_key_;
  int64_t bytes_total_ = 0, bytes_done_ = 0;
  size_t current_ = 0;
  int64_t line_ = 0;
  std::unique_ptr<Stream> stream_;
};

}  // namespace trireme
