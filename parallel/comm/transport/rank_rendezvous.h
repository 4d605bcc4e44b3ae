// Rendezvous of ranks over TCP.
//
// Every rank listens, rank 0 at a port known to all. A rank connects to rank 0, receives the
// addresses of the others, and connects to the lower ranks. On each connection both sides prove
// that they know the secret of the run without sending it (shared_secret.h):
//   listener -> rank: RankChallenge
//   rank -> listener: RankGreeting
//   listener -> rank: RankVerdict
// Later messages are neither signed nor encrypted.
#pragma once

#include <vector>

#include "parallel/comm/transport/tcp_socket.h"
#include "parallel/comm/transport/transport.h"

namespace trireme {

// Two connections to every other rank (index: rank; the own entry is closed), ready for use:
// non-blocking, TCP_NODELAY set.
struct RankSockets {
  std::vector<Socket> messages;
  std::vector<Socket> life_lines;
};

// Connects the ranks. Each listens at one address: at listen_address if that is set; otherwise rank
// 0 at MASTER_ADDR, and another rank at the address from which it reaches rank 0. A rank listens at
// all interfaces if listen_address is "*", and rank 0 also if MASTER_ADDR is a name of its own host
// that resolves to loopback. Rank 0 with an inherited listener uses only that. Connections that do
// not prove to be ranks of this run are closed, the first ten with a warning; they delay no rank,
// since all connections are served at once and each has a limited time. Error(kLostRank) if not all
// ranks join in time or a RANK is not unique. InputError if the secrets or the values of WORLD_SIZE
// differ, or if this rank cannot resolve or listen at its address.
RankSockets connect_ranks(const TcpOptions& options);

}  // namespace trireme
