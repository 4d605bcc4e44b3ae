// A block of memory mapped by several ranks of one host.
#pragma once

#include <string>

#include "engine/core/tensor.h"

namespace trireme {

// Anonymous memory behind a file descriptor (memfd): it vanishes with the last process that maps
// it, so that a killed run leaves nothing behind, and it does not depend on the size of /dev/shm.
// Threads of one process share it the same way as processes do.
class SharedMemory {
 public:
  SharedMemory() = default;
  ~SharedMemory();
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;

  // Zero-filled. Throws Error with the system's reason.
  static SharedMemory create(int64_t bytes);
  // Maps what another rank of this host created with so many bytes; throws Error where that cannot
  // be reached, as between containers, and where the address leads to anything but such a block: a
  // peer may name any file of any process. The creator must not have called close_address() yet.
  static SharedMemory attach(const std::string& address, int64_t bytes);
  const std::string& address() const { return address_; }
  void close_address();  // everybody has attached; the mapping stays

  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

 private:
  void map(int fd, int64_t bytes);
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
  int fd_ = -1;
  std::string address_;  // "pid fd bytes cookie"
};

}  // namespace trireme
