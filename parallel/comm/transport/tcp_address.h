// Internet addresses of ranks: resolve, listen, connect.
#pragma once

#include <sys/socket.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "parallel/comm/transport/tcp_socket.h"

namespace trireme {

// IPv4 or IPv6 address with a port. Ranks send the struct to each other unchanged.
struct TcpAddress {
  sockaddr_storage storage{};
  uint64_t length = 0;

  bool valid() const;  // one of the two families, with its length
  bool is_loopback() const;
  int port() const;
  void set_port(int port);
  std::string text() const;  // "10.0.0.1:29500", "[::1]:29500"
};

TcpAddress local_address(const Socket& socket);
TcpAddress peer_address(const Socket& socket);

// All addresses of a host name. Empty, with the reason in `why`, if there is none.
std::vector<TcpAddress> find_tcp(const std::string& host, int port, std::string& why);
// All addresses of a host name. InputError that names `variable` if the name is unknown or has no
// IPv4 or IPv6 address.
std::vector<TcpAddress> resolve_tcp(const std::string& variable, const std::string& host, int port);
bool is_literal_address(const std::string& host);
// Address of all interfaces of this machine: IPv6 and IPv4 if the kernel has both.
TcpAddress any_tcp_address(int port);

// Both return a closed Socket (open() is false) and set errno on failure.
Socket listen_at(const TcpAddress& address);  // port 0: any free one
// Returns a blocking socket. Stops waiting for an address that drops packets (a firewall, a full
// queue) at `end`, with ETIMEDOUT.
Socket connect_to(const TcpAddress& address, std::chrono::steady_clock::time_point end =
                                                 std::chrono::steady_clock::time_point::max());

}  // namespace trireme
