#include "engine/io/mapped_file.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "engine/io/atomic_file.h"
#include "engine/io/input_file.h"
#include "engine/io/mapping_guard.h"

namespace trireme {

MappedFile::MappedFile(std::string path) : path_(std::move(path)) {
  const int descriptor = open_regular_file(path_);
  struct stat info {};
  ::fstat(descriptor, &info);
  void* mapping = nullptr;
  if (info.st_size > 0) {
    mapping =
        ::mmap(nullptr, static_cast<size_t>(info.st_size), PROT_READ, MAP_SHARED, descriptor, 0);
  }
  const int error_number = errno;
  if (mapping == nullptr || mapping == MAP_FAILED) ::close(descriptor);
  if (mapping == MAP_FAILED) fail_file("map", path_, error_number);
  data_ = static_cast<const std::byte*>(mapping);
  size_ = info.st_size;
  if (data_ != nullptr) guard_mapping(bytes(), descriptor, path_);
}

MappedFile::~MappedFile() {
  if (data_ == nullptr) return;
  release_mapping(bytes());
  ::munmap(const_cast<std::byte*>(data_), static_cast<size_t>(size_));
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

}  // namespace trireme
