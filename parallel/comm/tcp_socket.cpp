#include "parallel/comm/tcp_socket.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <random>
#include <thread>

namespace trireme {
namespace {

using Clock = std::chrono::steady_clock;
constexpr uint32_t kMagic = 0x54524933;  // "TRI3"

// First bytes on every connection.
struct Greeting {
  uint32_t magic = kMagic;
  int32_t rank = 0;
  int32_t size = 0;
  int32_t port = 0;      // where this rank listens
  int32_t line = 0;      // 0: messages, 1: life line
  uint32_t process = 0;  // random: two processes that claim one rank are told apart
};
constexpr int kLines = 2;
using Lines = std::array<std::vector<Socket>, kLines>;

// Where a rank listens; sent by rank 0 to all.
struct Contact {
  sockaddr_storage address;
  uint32_t length;
};

class Deadline {
 public:
  explicit Deadline(double seconds)
      : end_(Clock::now() +
             std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds))) {}
  bool over() const { return Clock::now() >= end_; }
  int poll_ms() const { return 200; }

 private:
  Clock::time_point end_;
};

[[noreturn]] void fail_lost(const std::string& what) { throw Error(what, ExitCode::kLostRank); }

std::string reason() { return std::strerror(errno); }

// Whole value or false: the peer went away or was silent for too long.
bool read_all(int fd, void* data, size_t bytes, const Deadline& deadline) {
  auto* at = static_cast<std::byte*>(data);
  while (bytes > 0) {
    pollfd ready{fd, POLLIN, 0};
    if (poll(&ready, 1, deadline.poll_ms()) <= 0) {
      if (deadline.over()) return false;
      continue;
    }
    const ssize_t got = recv(fd, at, bytes, 0);
    if (got <= 0) return false;
    at += got;
    bytes -= static_cast<size_t>(got);
  }
  return true;
}

bool write_all(int fd, const void* data, size_t bytes) {
  const auto* at = static_cast<const std::byte*>(data);
  while (bytes > 0) {
    const ssize_t sent = send(fd, at, bytes, MSG_NOSIGNAL);
    if (sent <= 0) return false;
    at += sent;
    bytes -= static_cast<size_t>(sent);
  }
  return true;
}

// Ranks of one machine are not reached from others.
Socket listen_on(int port, bool loopback) {
  Socket socket_(loopback ? -1 : socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const bool v6 = socket_.open();
  if (!v6) socket_ = Socket(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket_.open()) throw Error(concat("cannot make a socket: ", reason()));
  const int yes = 1, no = 0;
  setsockopt(socket_.fd(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  sockaddr_storage address{};
  socklen_t length = 0;
  if (v6) {
    setsockopt(socket_.fd(), IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
    auto& a = reinterpret_cast<sockaddr_in6&>(address);
    a.sin6_family = AF_INET6;
    a.sin6_port = htons(narrow<uint16_t>(port));
    length = sizeof a;
  } else {
    auto& a = reinterpret_cast<sockaddr_in&>(address);
    a.sin_family = AF_INET;
    a.sin_port = htons(narrow<uint16_t>(port));
    if (loopback) a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    length = sizeof a;
  }
  if (bind(socket_.fd(), reinterpret_cast<sockaddr*>(&address), length) != 0)
    fail_input("rank 0 cannot listen on MASTER_PORT ", port, " (", reason(),
               "); choose a free port");
  if (listen(socket_.fd(), SOMAXCONN) != 0) throw Error(concat("cannot listen: ", reason()));
  return socket_;
}

bool on_loopback(const TcpOptions& options) { return options.master_address == "127.0.0.1"; }

int port_of(const Socket& socket_) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  getsockname(socket_.fd(), reinterpret_cast<sockaddr*>(&address), &length);
  if (address.ss_family == AF_INET6)
    return ntohs(reinterpret_cast<sockaddr_in6&>(address).sin6_port);
  return ntohs(reinterpret_cast<sockaddr_in&>(address).sin_port);
}

void set_port(sockaddr_storage& address, int port) {
  const uint16_t value = htons(narrow<uint16_t>(port));
  if (address.ss_family == AF_INET6)
    reinterpret_cast<sockaddr_in6&>(address).sin6_port = value;
  else
    reinterpret_cast<sockaddr_in&>(address).sin_port = value;
}

Socket connect_to(const sockaddr* address, socklen_t length) {
  Socket socket_(socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (socket_.open() && connect(socket_.fd(), address, length) == 0) return socket_;
  return {};
}

// Tries all addresses of the name until one answers: rank 0 may start later than the others.
Socket connect_to_master(const TcpOptions& options, const Deadline& deadline) {
  const std::string port = text(options.master_port);
  for (;;) {
    addrinfo hints{}, *found = nullptr;
    hints.ai_socktype = SOCK_STREAM;
    const int code = getaddrinfo(options.master_address.c_str(), port.c_str(), &hints, &found);
    if (code != 0)
      fail_input("MASTER_ADDR \"", options.master_address, "\" is unknown: ", gai_strerror(code));
    Socket socket_;
    for (addrinfo* a = found; a != nullptr && !socket_.open(); a = a->ai_next)
      socket_ = connect_to(a->ai_addr, a->ai_addrlen);
    freeaddrinfo(found);
    if (socket_.open()) return socket_;
    if (deadline.over())
      fail_lost(concat("rank ", options.rank, " found no rank 0 at ", options.master_address, ":",
                       options.master_port, " (", reason(), ")"));
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

// Accepts until every rank >= `first` other than `own` has come with both lines; `seen` is called
// for each.
template <class F>
void accept_ranks(const Socket& listener, const TcpOptions& options, int first, Lines& lines,
                  const Deadline& deadline, F&& seen) {
  int missing = 0;
  std::vector<std::optional<uint32_t>> processes(static_cast<size_t>(options.size));
  for (int r = first; r < options.size; ++r)
    if (r != options.rank) missing += kLines;
  while (missing > 0) {
    pollfd ready{listener.fd(), POLLIN, 0};
    if (poll(&ready, 1, deadline.poll_ms()) <= 0) {
      if (deadline.over())
        fail_lost(concat("rank ", options.rank, " waited in vain for ", ceil_div(missing, kLines),
                         " of ", options.size, " ranks to connect"));
      continue;
    }
    Socket guest(accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC));
    Greeting hello;
    // A stranger must not keep the ranks waiting.
    if (!guest.open() || !read_all(guest.fd(), &hello, sizeof hello, Deadline(5))) continue;
    const bool ours = hello.magic == kMagic && hello.size == options.size && hello.rank >= first &&
                      hello.rank < options.size && hello.port > 0 && hello.port < 65536 &&
                      hello.line >= 0 && hello.line < kLines;
    if (!ours) continue;
    Socket& place = lines[static_cast<size_t>(hello.line)][static_cast<size_t>(hello.rank)];
    auto& process = processes[static_cast<size_t>(hello.rank)];
    if (place.open() || process.value_or(hello.process) != hello.process) continue;
    process = hello.process;
    seen(hello, guest);
    place = std::move(guest);
    --missing;
  }
}

// Rank 0: learns where everybody listens and tells everybody.
void gather_contacts(const Socket& listener, const TcpOptions& options, Lines& lines,
                     const Deadline& deadline) {
  std::vector<Contact> contacts(static_cast<size_t>(options.size));
  accept_ranks(listener, options, 1, lines, deadline, [&](const Greeting& g, const Socket& s) {
    Contact& contact = contacts[static_cast<size_t>(g.rank)];
    contact.length = sizeof contact.address;
    getpeername(s.fd(), reinterpret_cast<sockaddr*>(&contact.address), &contact.length);
    set_port(contact.address, g.port);
  });
  for (int r = 1; r < options.size; ++r)
    if (!write_all(lines[0][static_cast<size_t>(r)].fd(), contacts.data(),
                   contacts.size() * sizeof(Contact)))
      fail_lost(concat("rank ", r, " left while the ranks were meeting"));
}

void greet(const Socket& socket_, const Greeting& own, int peer) {
  if (!write_all(socket_.fd(), &own, sizeof own))
    fail_lost(concat("rank ", own.rank, " lost rank ", peer, " while the ranks were meeting"));
}

// A rank other than 0: connects to those below it, accepts those above.
void join_others(const TcpOptions& options, Lines& lines, const Deadline& deadline) {
  const Socket listener = listen_on(0, on_loopback(options));
  Greeting own{kMagic, options.rank, options.size, port_of(listener), 0, std::random_device()()};
  for (own.line = 0; own.line < kLines; ++own.line) {
    Socket& socket_ = lines[static_cast<size_t>(own.line)][0];
    socket_ = connect_to_master(options, deadline);
    greet(socket_, own, 0);
  }
  std::vector<Contact> contacts(static_cast<size_t>(options.size));
  if (!read_all(lines[0][0].fd(), contacts.data(), contacts.size() * sizeof(Contact), deadline))
    fail_lost(concat("rank ", options.rank, " lost rank 0 while the ranks were meeting (is RANK ",
                     "unique and WORLD_SIZE the same everywhere?)"));
  for (int r = 1; r < options.rank; ++r)  // everybody listens already
    for (own.line = 0; own.line < kLines; ++own.line) {
      const Contact& contact = contacts[static_cast<size_t>(r)];
      Socket& socket_ = lines[static_cast<size_t>(own.line)][static_cast<size_t>(r)];
      socket_ = connect_to(reinterpret_cast<const sockaddr*>(&contact.address), contact.length);
      if (!socket_.open()) fail_lost(concat("rank ", options.rank, " cannot reach rank ", r));
      greet(socket_, own, r);
    }
  accept_ranks(listener, options, options.rank + 1, lines, deadline,
               [](const Greeting&, const Socket&) {});
}

}  // namespace

Socket::~Socket() {
  if (fd_ >= 0) close(fd_);
}
Socket::Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
Socket& Socket::operator=(Socket&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}
void Socket::set_non_blocking() const { fcntl(fd_, F_SETFL, fcntl(fd_, F_GETFL) | O_NONBLOCK); }
void Socket::shut_down() const noexcept {
  if (fd_ >= 0) shutdown(fd_, SHUT_RDWR);
}

RankSockets meet_ranks(const TcpOptions& options) {
  const Deadline deadline(options.timeout_s);
  Lines lines;
  for (auto& line : lines) line.resize(static_cast<size_t>(options.size));
  if (options.size > 1 && options.rank == 0)
    gather_contacts(listen_on(options.master_port, on_loopback(options)), options, lines, deadline);
  else if (options.size > 1)
    join_others(options, lines, deadline);
  const int yes = 1;
  for (const auto& line : lines)
    for (const Socket& socket_ : line) {
      if (!socket_.open()) continue;
      setsockopt(socket_.fd(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
      socket_.set_non_blocking();
    }
  return {std::move(lines[0]), std::move(lines[1])};
}

}  // namespace trireme
