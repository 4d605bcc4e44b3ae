#include "parallel/comm/transport/reserved_port.h"

#include <netinet/in.h>

#include <cerrno>
#include <cstring>

#include "engine/core/error.h"
#include "parallel/comm/transport/tcp_address.h"

namespace trireme {

ReservedPort::ReservedPort() {
  TcpAddress address;
  auto& loopback = reinterpret_cast<sockaddr_in&>(address.storage);
  loopback.sin_family = AF_INET;
  loopback.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.length = sizeof loopback;
  socket_ = listen_at(address);
  if (!socket_.open()) throw Error(concat("no TCP port is free: ", std::strerror(errno)));
  number_ = local_address(socket_).port();
}

}  // namespace trireme
