#include "parallel/comm/transport/tcp_socket.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

namespace trireme {

Socket::~Socket() {
  if (fd_ >= 0) close(fd_);
}
Socket::Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
Socket& Socket::operator=(Socket&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}
void Socket::set_non_blocking() const { fcntl(fd_, F_SETFL, fcntl(fd_, F_GETFL) | O_NONBLOCK); }
void Socket::set_blocking() const { fcntl(fd_, F_SETFL, fcntl(fd_, F_GETFL) & ~O_NONBLOCK); }
void Socket::shut_down() const noexcept {
  if (fd_ >= 0) shutdown(fd_, SHUT_RDWR);
}

}  // namespace trireme
