// Rendezvous of ranks over TCP.
//
// Every rank listens; rank 0 at a port all know. A rank connects to rank 0, learns from it where
// the others listen, and connects to those below it. On each connection both sides prove that they
// know the secret of the run without sending it (shared_secret.h):
//   listener -> rank: RankChallenge;   rank -> listener: RankGreeting;   listener -> rank: RankVerdict.
// Messages that come later are neither signed nor encrypted.
#pragma once

#include <vector>

#include "parallel/comm/transport/tcp_socket.h"
#include "parallel/comm/transport/transport.h"

namespace trireme {

// Two connections to every other rank (index = rank, closed for the own one), ready for use:
// non-blocking, without delay.
struct RankSockets {
  std::vector<Socket> messages;
  std::vector<Socket> life_lines;
};

// Listens at one address only: rank 0 at MASTER_ADDR, another rank at the address from which it
// reaches rank 0, or all of them where listen_address says. Connections that do not prove to be
// ranks of this run are closed, the first of them with a warning; they hold up nobody: all are
// served at once, and each has a limited time. Error(kLostRank) where not all ranks have come in
// time, InputError where they do not belong together.
RankSockets connect_ranks(const TcpOptions& options);

}  // namespace trireme
