// Rendezvous of control channels: one process listens for others, the ranks of a job or the sites
// of a training run, until it has them all.
//
// Both sides prove that they know a secret without sending it (HMAC-SHA256 over both sides' random
// numbers):
//   listener -> rank: challenge;
//   rank -> listener: its number, process, protocol version, program, a random number, proof;
//   listener -> rank: proof, or the reason why it rejects the rank and a proof of that.
// Messages after the handshake are neither encrypted nor authenticated: where others can change
// what a network carries, use a tunnel.
//
// A pending connection is one that has not authenticated yet. accept() serves all of them at once,
// so that a silent one delays no rank. There are at most kMaxPending. Each has kHandshake to
// authenticate. When there are kMaxPending and another peer connects, the oldest has only
// kMinHandshake.
//
// On one machine the socket is an abstract Unix socket (no file), and the peer must run as the same
// user. Across machines it is TCP on the given address of this machine.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "parallel/comm/control/control_channel.h"

namespace trireme {

// Names of the processes in errors and logs, and what they must have in common.
struct ControlPeers {
  static constexpr uint32_t kSameBuild = 0;

  const char* one = "rank";
  const char* all = "ranks";
  const char* listener = "the leading process";
  // Version of the messages' format that both sides must have. kSameBuild: both must run the same
  // build of the program.
  uint32_t protocol = kSameBuild;
};

// Parts of "HOST:PORT", where an IPv6 host may have brackets; absent: it is no such text. The port
// may be any number.
struct HostAndPort {
  std::string host;
  int port = 0;
};
std::optional<HostAndPort> host_and_port(const std::string& text);

struct ControlAddress {
  std::string where;  // "unix:NAME" or "tcp:HOST:PORT"
  // At least kMinSecret characters (secret_file.h); 64 hexadecimal digits if make_secret()'s.
  std::string secret;

  // Address of a listener with a fixed port and a secret that a user has chosen. InputError if the
  // secret is too short or there is no such port.
  static ControlAddress tcp(const std::string& host, int port, std::string secret,
                            const ControlPeers& peers = {});
  // Both members on one line, for a rank's environment or a broadcast. parse() reads it back;
  // InputError if `where` has another form or the secret has not 64 characters.
  std::string line() const;
  static ControlAddress parse(const std::string& line);
};

class ControlListener {
 public:
  static constexpr size_t kMaxPending = 128;
  static constexpr std::chrono::milliseconds kHandshake{2000}, kMinHandshake{200};

  struct ConnectedRank {
    int rank = 0;     // as the rank states it; the caller must check its range
    int process = 0;  // process id on its machine
    std::unique_ptr<ControlChannel> channel;
  };

  // Error if the socket cannot be created.
  static ControlListener on_this_machine();
  // host: a name or address of this machine; empty: the address of its own host name. port 0: any
  // free one. Empty secret: a new one. InputError if one of them cannot be used.
  static ControlListener on_address(const std::string& host, int port = 0, std::string secret = {},
                                    const ControlPeers& peers = {});

  const ControlAddress& address() const { return address_; }
  // Returns the next connection that proves to know the secret and has the same build or protocol;
  // nullptr: none within `limit`. Rejects all others, and logs the first ten as warnings. Only one
  // thread may call it. A rank whose handshake the caller leaves waiting for kHandshake gives up.
  std::unique_ptr<ConnectedRank> accept(std::chrono::milliseconds limit);

 private:
  using Clock = std::chrono::steady_clock;
  struct PendingConnection {
    std::unique_ptr<ControlChannel> channel;
    std::string challenge;
    Clock::time_point came;
  };

  ControlListener(Socket socket, ControlAddress address, const ControlPeers& peers);
  std::vector<bool> wait_until(Clock::time_point end) const;
  std::unique_ptr<ConnectedRank> introduced(const std::vector<bool>& said);
  std::unique_ptr<ConnectedRank> connected_rank_of(PendingConnection& pending,
                                                   const Message& message) const;
  void turn_away_silent();
  void take_stranger();
  void turn_away(const char* why);

  Socket socket_;
  ControlAddress address_;
  ControlPeers peers_;
  std::vector<PendingConnection> pending_;  // oldest first
  Clock::time_point takes_again_{};         // no connection is accepted before this
  int64_t turned_away_ = 0;
};

// Connects a rank to its listener. Error(kLostRank) when no process listens within `limit`, or when
// it closes the connection, as it does if this rank has another secret. BadMessage when it does not
// know the secret or does not respond in time. InputError if its host cannot be resolved, or if it
// rejects this rank for its build or protocol.
std::unique_ptr<ControlChannel> connect_control_channel(const ControlAddress& address, int rank,
                                                        std::chrono::milliseconds limit,
                                                        const ControlPeers& peers = {});

}  // namespace trireme
