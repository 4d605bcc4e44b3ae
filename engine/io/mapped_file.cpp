#include "engine/io/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "engine/core/error.h"
#include "engine/io/atomic_file.h"
#include "engine/io/mapping_guard.h"

namespace trireme {

MappedFile::MappedFile(std::string path) : path_(std::move(path)) {
  // A FIFO would have the open wait for a writer.
  const int descriptor = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) fail_file("open", path_, errno);
  struct stat info {};
  const bool regular = ::fstat(descriptor, &info) == 0 && S_ISREG(info.st_mode);
  void* mapping = nullptr;
  if (regular && info.st_size > 0) {
    mapping =
        ::mmap(nullptr, static_cast<size_t>(info.st_size), PROT_READ, MAP_SHARED, descriptor, 0);
  }
  const int error_number = errno;
  if (mapping == nullptr || mapping == MAP_FAILED) ::close(descriptor);
  if (!regular) fail_input("cannot read ", path_, ": it is not a regular file");
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
