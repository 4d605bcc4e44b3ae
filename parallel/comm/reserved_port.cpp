#include "parallel/comm/reserved_port.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "engine/core/error.h"

namespace trireme {

ReservedPort::ReservedPort() : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  if (socket_.fd() < 0) throw Error(concat("no socket can be made: ", std::strerror(errno)));
  const int yes = 1;
  setsockopt(socket_.fd(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  socklen_t length = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (bind(socket_.fd(), generic, length) != 0 || getsockname(socket_.fd(), generic, &length) != 0)
    throw Error(concat("no TCP port is free: ", std::strerror(errno)));
  number_ = ntohs(address.sin_port);
}

}  // namespace trireme
