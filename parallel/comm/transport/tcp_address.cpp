#include "parallel/comm/transport/tcp_address.h"

#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "engine/core/error.h"
#include "engine/core/tensor.h"

namespace trireme {
namespace {

const sockaddr* generic(const TcpAddress& address) {
  return reinterpret_cast<const sockaddr*>(&address.storage);
}

const sockaddr_in& ipv4(const TcpAddress& address) {
  return reinterpret_cast<const sockaddr_in&>(address.storage);
}

const sockaddr_in6& ipv6(const TcpAddress& address) {
  return reinterpret_cast<const sockaddr_in6&>(address.storage);
}

TcpAddress address_of(const Socket& socket_, decltype(&getsockname) which) {
  TcpAddress out;
  socklen_t length = sizeof out.storage;
  if (which(socket_.fd(), reinterpret_cast<sockaddr*>(&out.storage), &length) == 0)
    out.length = length;
  return out;
}

// Returns false, with errno, if the connection is refused or at `end`.
bool wait_until_connected(const Socket& socket_, std::chrono::steady_clock::time_point end) {
  constexpr int kLookMs = 200;
  pollfd ready{socket_.fd(), POLLOUT, 0};
  while (poll(&ready, 1, kLookMs) <= 0) {
    if (std::chrono::steady_clock::now() < end) continue;
    errno = ETIMEDOUT;
    return false;
  }
  int error_number = 0;
  socklen_t length = sizeof error_number;
  getsockopt(socket_.fd(), SOL_SOCKET, SO_ERROR, &error_number, &length);
  errno = error_number;
  return error_number == 0;
}

}  // namespace

bool TcpAddress::valid() const {
  if (storage.ss_family == AF_INET) return length == sizeof(sockaddr_in);
  return storage.ss_family == AF_INET6 && length == sizeof(sockaddr_in6);
}

bool TcpAddress::is_loopback() const {
  if (storage.ss_family == AF_INET) return ntohl(ipv4(*this).sin_addr.s_addr) >> 24 == 127;
  const in6_addr& address = ipv6(*this).sin6_addr;
  if (IN6_IS_ADDR_V4MAPPED(&address)) return address.s6_addr[12] == 127;
  return IN6_IS_ADDR_LOOPBACK(&address);
}

int TcpAddress::port() const {
  return ntohs(storage.ss_family == AF_INET6 ? ipv6(*this).sin6_port : ipv4(*this).sin_port);
}

void TcpAddress::set_port(int port) {
  const uint16_t value = htons(narrow<uint16_t>(port));
  if (storage.ss_family == AF_INET6)
    reinterpret_cast<sockaddr_in6&>(storage).sin6_port = value;
  else
    reinterpret_cast<sockaddr_in&>(storage).sin_port = value;
}

std::string TcpAddress::text() const {
  char host[NI_MAXHOST] = "?", service[NI_MAXSERV] = "?";
  getnameinfo(generic(*this), static_cast<socklen_t>(length), host, sizeof host, service,
              sizeof service, NI_NUMERICHOST | NI_NUMERICSERV);
  const bool v6 = storage.ss_family == AF_INET6;
  return concat(v6 ? "[" : "", host, v6 ? "]:" : ":", service);
}

TcpAddress local_address(const Socket& socket) { return address_of(socket, getsockname); }
TcpAddress peer_address(const Socket& socket) { return address_of(socket, getpeername); }

std::vector<TcpAddress> find_tcp(const std::string& host, int port, std::string& why) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  const std::string service = trireme::text(port);
  const int code = getaddrinfo(host.c_str(), service.c_str(), &hints, &found);
  std::vector<TcpAddress> out;
  if (code != 0) {
    why = gai_strerror(code);
    return out;
  }
  for (const addrinfo* a = found; a != nullptr; a = a->ai_next) {
    TcpAddress one;
    one.length = a->ai_addrlen;
    std::memcpy(&one.storage, a->ai_addr, std::min<size_t>(a->ai_addrlen, sizeof one.storage));
    if (one.valid()) out.push_back(one);
  }
  freeaddrinfo(found);
  if (out.empty()) why = "it has no internet address";
  return out;
}

std::vector<TcpAddress> resolve_tcp(const std::string& variable, const std::string& host,
                                    int port) {
  std::string why;
  std::vector<TcpAddress> out = find_tcp(host, port, why);
  if (out.empty()) fail_input(variable, " \"", host, "\" is unknown: ", why);
  return out;
}

bool is_literal_address(const std::string& host) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_flags = AI_NUMERICHOST;
  const bool literal = getaddrinfo(host.c_str(), nullptr, &hints, &found) == 0;
  if (literal) freeaddrinfo(found);
  return literal;
}

TcpAddress any_tcp_address(int port) {
  const Socket probe(socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  TcpAddress out;
  out.storage.ss_family = probe.open() ? AF_INET6 : AF_INET;
  out.length = probe.open() ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  out.set_port(port);
  return out;
}

Socket listen_at(const TcpAddress& address) {
  Socket socket_(socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket_.open()) return {};
  const int yes = 1, no = 0;
  setsockopt(socket_.fd(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (address.storage.ss_family == AF_INET6)
    setsockopt(socket_.fd(), IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
  const auto length = static_cast<socklen_t>(address.length);
  if (bind(socket_.fd(), generic(address), length) != 0) return {};
  if (listen(socket_.fd(), SOMAXCONN) != 0) return {};
  return socket_;
}

Socket connect_to(const TcpAddress& address, std::chrono::steady_clock::time_point end) {
  const int type = SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK;
  Socket socket_(socket(address.storage.ss_family, type, 0));
  if (!socket_.open()) return {};
  const auto length = static_cast<socklen_t>(address.length);
  if (connect(socket_.fd(), generic(address), length) != 0) {
    if (errno != EINPROGRESS || !wait_until_connected(socket_, end)) return {};
  }
  socket_.set_blocking();
  return socket_;
}

}  // namespace trireme
