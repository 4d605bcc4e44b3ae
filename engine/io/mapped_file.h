// Whole file mapped into memory, read-only. The mapping stays valid when the file is renamed or
// unlinked; if it is truncated, see mapping_guard.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace trireme {

class MappedFile {
 public:
  MappedFile() = default;
  // InputError if it cannot be opened or mapped, or is not a regular file. An empty file maps to no
  // bytes.
  explicit MappedFile(std::string path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  std::span<const std::byte> bytes() const { return {data_, static_cast<size_t>(size_)}; }
  int64_t size() const { return size_; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  const std::byte* data_ = nullptr;
  int64_t size_ = 0;
};

}  // namespace trireme
