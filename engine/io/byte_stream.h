// Byte stream of a file, decompressed while reading.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "engine/io/text_files.h"

namespace trireme {

// Sequential reader of a file's decompressed bytes. Opening and reading throw InputError naming the
// file if it cannot be read, is damaged, is truncated or has become shorter than TextFile::bytes.
class ByteStream {
 public:
  virtual ~ByteStream() = default;
  // Reads up to `capacity` decompressed bytes and returns their number; 0 only at the end.
  virtual size_t read(char* out, size_t capacity) = 0;
  virtual int64_t position() const = 0;  // bytes of the file on disk consumed so far
};

std::unique_ptr<ByteStream> open_byte_stream(const TextFile& file);

}  // namespace trireme
