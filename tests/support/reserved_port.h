// A TCP port that no other process is given while this object lives, and that one may listen on.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "engine/core/error.h"

namespace trireme::test {

// Bound but not listening: whoever sets SO_REUSEADDR as well, as our listeners do, may bind it too,
// while the kernel gives it to nobody who asks for any port.
class ReservedPort {
 public:
  ReservedPort() : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const int yes = 1;
    setsockopt(fd_, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    socklen_t length = sizeof address;
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    TRIREME_CHECK(bind(fd_, generic, length) == 0 && getsockname(fd_, generic, &length) == 0,
                  "no free port");
    number_ = ntohs(address.sin_port);
  }
  ~ReservedPort() { close(fd_); }
  ReservedPort(const ReservedPort&) = delete;
  ReservedPort& operator=(const ReservedPort&) = delete;
  int number() const { return number_; }

 private:
  int fd_;
  int number_ = 0;
};

}  // namespace trireme::test
