// Reader of documents from text files (text_files.h), in a fixed order. Text must be UTF-8 without
// NUL bytes, at most 1 GiB per record; a byte order mark is dropped. U+0000 written as \u0000 in a
// JSON line is an ordinary character. Every problem is an InputError naming the file and, if there
// is one, the line and the number of the record in an array. Only one record is in memory.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/io/text_files.h"

namespace trireme {

// One line, one element of an array, or one whole file, unchecked and unparsed.
struct TextRecord {
  std::string bytes;
  size_t file = 0;      // index into files()
  int64_t line = 0;     // line where it starts, from 1; 0: the whole file
  int64_t element = 0;  // number in an array, from 1; 0: not in one
};

class TextReader {
 public:
  explicit TextReader(std::vector<TextFile> files, std::string json_key = "text");
  ~TextReader();

  // Reads the next record, skipping blank lines; false at the end. nullptr: skips the record.
  bool next(TextRecord* record);
  // Returns the document of a record: checks and parses it. Thread-safe.
  std::string document(TextRecord&& record) const;
  // Location for messages: "FILE:LINE", "FILE:LINE: record 3" of an array, or the file.
  std::string place(const TextRecord& record) const;

  const std::vector<TextFile>& files() const { return files_; }
  int64_t bytes_total() const { return bytes_total_; }  // on disk
  int64_t bytes_read() const;                           // of bytes_total()

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
