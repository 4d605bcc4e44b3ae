// Stream socket, closed by the destructor.
#pragma once

#include <utility>

namespace trireme {

class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  ~Socket();
  Socket(Socket&& other) noexcept;
  Socket& operator=(Socket&& other) noexcept;
  int fd() const { return fd_; }
  bool open() const { return fd_ >= 0; }
  void set_non_blocking() const;
  void set_blocking() const;
  void shut_down() const noexcept;  // both directions: ends the peer's reads

 private:
  int fd_ = -1;
};

}  // namespace trireme
