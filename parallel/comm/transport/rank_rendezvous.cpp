#include "parallel/comm/transport/rank_rendezvous.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <random>
#include <thread>

#include "engine/observe/log.h"
#include "parallel/comm/transport/rank_acceptor.h"

namespace trireme {
namespace {

using RendezvousClock = std::chrono::steady_clock;
using RendezvousEnd = RendezvousClock::time_point;
constexpr int kRendezvousPollMs = 200;

[[noreturn]] void fail_rendezvous(const std::string& what) {
  throw Error(what, ExitCode::kLostRank);
}

std::string system_reason() { return std::strerror(errno); }

bool retryable() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

// Returns false if the peer closed its side or the time is up.
bool wait_for_socket(int fd, short event, RendezvousEnd end) {
  for (;;) {
    if (RendezvousClock::now() >= end) return false;
    pollfd ready{fd, event, 0};
    if (poll(&ready, 1, kRendezvousPollMs) > 0) return true;
  }
}

bool read_all(int fd, void* data, size_t bytes, RendezvousEnd end) {
  auto* at = static_cast<std::byte*>(data);
  while (bytes > 0) {
    if (!wait_for_socket(fd, POLLIN, end)) return false;
    const ssize_t got = recv(fd, at, bytes, 0);
    if (got < 0 && retryable()) continue;
    if (got <= 0) return false;
    at += got;
    bytes -= static_cast<size_t>(got);
  }
  return true;
}

bool write_all(int fd, const void* data, size_t bytes, RendezvousEnd end) {
  const auto* at = static_cast<const std::byte*>(data);
  while (bytes > 0) {
    if (!wait_for_socket(fd, POLLOUT, end)) return false;
    const ssize_t sent = send(fd, at, bytes, MSG_NOSIGNAL);
    if (sent < 0 && retryable()) continue;
    if (sent <= 0) return false;
    at += sent;
    bytes -= static_cast<size_t>(sent);
  }
  return true;
}

// Listener bound by the launcher and inherited, so that no other process could take its port.
Socket take_listener(const TcpOptions& options) {
  Socket listener(options.listener);
  int listens = 0;
  socklen_t length = sizeof listens;
  const bool good = getsockopt(listener.fd(), SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) == 0 &&
                    listens != 0 && local_address(listener).port() == options.master_port;
  if (!good)
    fail_input("descriptor ", options.listener, " does not listen at MASTER_PORT ",
               options.master_port, "; start the ranks with the launcher that set it");
  return listener;
}

// Listening addresses of rank 0.
std::vector<TcpAddress> master_addresses(const TcpOptions& options) {
  const int port = options.master_port;
  if (options.listen_address == "*") return {any_tcp_address(port)};
  if (!options.listen_address.empty())
    return resolve_tcp("TRIREME_LISTEN_ADDRESS", options.listen_address, port);
  std::vector<TcpAddress> found = resolve_tcp("MASTER_ADDR", options.master_address, port);
  // The host's own name may resolve to a loopback address there and to another one on other hosts.
  const bool own_name = options.master_address != "localhost" &&
                        !is_literal_address(options.master_address) &&
                        std::ranges::all_of(found, &TcpAddress::is_loopback);
  if (own_name) return {any_tcp_address(port)};
  return found;
}

Socket listen_as_master(const TcpOptions& options) {
  if (options.listener >= 0) return take_listener(options);
  for (const TcpAddress& address : master_addresses(options)) {
    Socket listener = listen_at(address);
    if (listener.open()) return listener;
    if (errno != EADDRNOTAVAIL && errno != EAFNOSUPPORT)
      fail_input("rank 0 cannot listen at ", address.text(), " (MASTER_PORT ", options.master_port,
                 ": ", system_reason(), "); choose a free port");
  }
  fail_input("rank 0 cannot listen at \"", options.master_address, "\" (MASTER_ADDR): it is not ",
             "an address of this machine; set TRIREME_LISTEN_ADDRESS to one, or to * for all");
}

// Tries all addresses of the name until one accepts: rank 0 may start later than the others.
Socket connect_to_master(const TcpOptions& options, RendezvousEnd end) {
  RendezvousEnd notice = RankAcceptor::notice_before(end);
  for (;;) {
    for (const TcpAddress& address :
         resolve_tcp("MASTER_ADDR", options.master_address, options.master_port))
      if (Socket socket_ = connect_to(address, std::min(end, notice)); socket_.open())
        return socket_;
    const std::string why = system_reason();
    const std::string where = concat(options.master_address, ":", options.master_port);
    if (RendezvousClock::now() >= end)
      fail_rendezvous(concat("rank ", options.rank, " found no rank 0 at ", where, " (", why,
                             ") within ", options.timeout_s, " s (comm.timeout); start all ranks ",
                             "with one MASTER_ADDR and MASTER_PORT, or unset RANK and WORLD_SIZE ",
                             "for a single process"));
    if (RendezvousClock::now() >= notice) {
      notice = end;
      log_warning("rank ", options.rank, " waits for rank 0 at ", where, " (", why,
                  "); giving up after ", options.timeout_s, " s (comm.timeout)");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

[[noreturn]] void fail_refused(int rank, int peer, RankRefusal refusal) {
  const std::string head = concat("rank ", peer, " refuses rank ", rank, ": ");
  if (refusal == RankRefusal::kSecret)
    fail_input(head, "it has another secret; give all ranks the same TRIREME_COMM_SECRET or ",
               "TRIREME_COMM_SECRET_FILE");
  if (refusal == RankRefusal::kSize)
    fail_input(head, "it has another WORLD_SIZE; give all ranks the same");
  fail_rendezvous(
      concat(head, "RANK is not unique, or the ranks use different values of MASTER_ADDR"));
}

// Proves to the listening rank `peer` that this is a rank of the run, and verifies its proof.
void introduce(const Socket& socket_, RankGreeting own, int peer, const TcpOptions& options,
               RendezvousEnd end) {
  const auto gone = [&] {
    fail_rendezvous(concat("rank ", own.rank, " lost rank ", peer, " during the rendezvous"));
  };
  RankChallenge challenge;
  if (!read_all(socket_.fd(), &challenge, sizeof challenge, end)) gone();
  const std::string at = peer_address(socket_).text();
  if (challenge.magic != kRankMagic)
    fail_rendezvous(concat("rank ", own.rank, ": ", at, " is not rank ", peer, " of this program"));
  own.peer = peer;
  std::ranges::copy(random_bytes(own.nonce.size()), own.nonce.begin());
  own.proof = greeting_proof(options.secret, challenge, own);
  if (!write_all(socket_.fd(), &own, sizeof own, end)) gone();
  RankVerdict verdict;
  if (!read_all(socket_.fd(), &verdict, sizeof verdict, end)) gone();
  if (verdict.refusal != RankRefusal::kNone) fail_refused(own.rank, peer, verdict.refusal);
  const RankProof wanted = verdict_proof(options.secret, challenge, own);
  if (!equal_in_constant_time({wanted.data(), wanted.size()},
                              {verdict.proof.data(), verdict.proof.size()}))
    fail_input("rank ", own.rank, ": the process at ", at, " does not know the secret of this run");
}

// Rank 0: collects the listening addresses of all ranks and sends them to all.
void gather_addresses(const TcpOptions& options, RankLines& lines, RendezvousEnd end) {
  const Socket listener = listen_as_master(options);
  listener.set_non_blocking();
  if (options.secret.empty() && !local_address(listener).is_loopback())
    log_warning("ranks connect at ", local_address(listener).text(),
                " without a secret: any process that ",
                "reaches that port may join the run; set TRIREME_COMM_SECRET_FILE on all ranks, ",
                "or keep the network closed");
  std::vector<TcpAddress> addresses(static_cast<size_t>(options.size));
  RankAcceptor(listener, options, 1, lines)
      .accept_all(end, [&](const RankGreeting& hello, const TcpAddress& from) {
        TcpAddress& address = addresses[static_cast<size_t>(hello.rank)];
        address = from;
        address.set_port(hello.port);
      });
  for (int r = 1; r < options.size; ++r)
    if (!write_all(lines[0][static_cast<size_t>(r)].fd(), addresses.data(),
                   addresses.size() * sizeof(TcpAddress), end))
      fail_rendezvous(concat("rank ", r, " left during the rendezvous"));
}

// Ranks other than 0: listens at the address from which this rank reaches rank 0, any port.
Socket listen_as_rank(const TcpOptions& options, const Socket& to_master) {
  TcpAddress address = local_address(to_master);
  if (options.listen_address == "*")
    address = any_tcp_address(0);
  else if (!options.listen_address.empty())
    address = resolve_tcp("TRIREME_LISTEN_ADDRESS", options.listen_address, 0).front();
  address.set_port(0);
  Socket listener = listen_at(address);
  if (!listener.open())
    fail_input("rank ", options.rank, " cannot listen at ", address.text(), ": ", system_reason());
  listener.set_non_blocking();
  return listener;
}

// Ranks other than 0: connects to the ranks below, accepts those above.
void join_ranks(const TcpOptions& options, RankLines& lines, RendezvousEnd end) {
  lines[0][0] = connect_to_master(options, end);
  const Socket listener = listen_as_rank(options, lines[0][0]);
  RankGreeting own{.rank = options.rank,
                   .size = options.size,
                   .port = local_address(listener).port(),
                   .process = std::random_device()()};
  for (own.line = 0; own.line < kRankLines; ++own.line) {
    Socket& socket_ = lines[static_cast<size_t>(own.line)][0];
    if (!socket_.open()) socket_ = connect_to_master(options, end);
    introduce(socket_, own, 0, options, end);
  }
  std::vector<TcpAddress> addresses(static_cast<size_t>(options.size));
  if (!read_all(lines[0][0].fd(), addresses.data(), addresses.size() * sizeof(TcpAddress), end))
    fail_rendezvous(concat("rank ", options.rank, " lost rank 0 during the rendezvous"));
  for (int r = 1; r < options.rank; ++r)  // all ranks listen already
    for (own.line = 0; own.line < kRankLines; ++own.line) {
      const TcpAddress& address = addresses[static_cast<size_t>(r)];
      Socket& socket_ = lines[static_cast<size_t>(own.line)][static_cast<size_t>(r)];
      if (address.valid()) socket_ = connect_to(address, end);
      if (!socket_.open()) fail_rendezvous(concat("rank ", options.rank, " cannot reach rank ", r));
      introduce(socket_, own, r, options, end);
    }
  RankAcceptor(listener, options, options.rank + 1, lines)
      .accept_all(end, [](const RankGreeting&, const TcpAddress&) {});
}

}  // namespace

RankSockets connect_ranks(const TcpOptions& options) {
  const RendezvousEnd end =
      RendezvousClock::now() + std::chrono::duration_cast<RendezvousClock::duration>(
                                   std::chrono::duration<double>(options.timeout_s));
  RankLines lines;
  for (auto& line : lines) line.resize(static_cast<size_t>(options.size));
  if (options.size > 1 && options.rank == 0)
    gather_addresses(options, lines, end);
  else if (options.size > 1)
    join_ranks(options, lines, end);
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
