// The bytes of a file, decompressed on the way.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "engine/io/text_files.h"

namespace trireme {

// InputError names the file when it cannot be read, is damaged, ends in the middle or has become
// shorter than TextFile::bytes.
class ByteStream {
 public:
  virtual ~ByteStream() = default;
  // Fills up to `capacity` bytes and returns how many; 0 at the end.
  virtual size_t read(char* out, size_t capacity) = 0;
  virtual int64_t position() const = 0;  // bytes of the file on disk used so far
};

std::unique_ptr<ByteStream> open_byte_stream(const TextFile& file);

}  // namespace trireme
