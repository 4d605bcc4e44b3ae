// Memory mapped by several ranks of one host.
#pragma once

#include <string>

#include "engine/core/tensor.h"

namespace trireme {

// Anonymous memory of a file descriptor (memfd). It vanishes with the last process that maps it, so
// that a killed run leaves nothing, and it does not depend on the size of /dev/shm. Threads of one
// process share it the same way as processes do.
class SharedMemory {
 public:
  SharedMemory() = default;
  ~SharedMemory();
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;

  // Zero-filled. Throws Error with the system's reason.
  static SharedMemory create(int64_t bytes);
  // Maps a block of `bytes` created by another rank of this host, which must not have called
  // close_address() yet. Throws Error if it cannot be reached, as between containers, or if the
  // address does not name such a block of this user: a peer may send any address.
  static SharedMemory attach(const std::string& address, int64_t bytes);
  const std::string& address() const { return address_; }
  void close_address();  // once all have attached; the mapping stays

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
