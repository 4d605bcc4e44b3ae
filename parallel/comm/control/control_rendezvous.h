// Rendezvous of a job's control channels: one process listens until all ranks have connected, then
// stops listening.
//
// Both sides prove that they know the job's secret without sending it (HMAC-SHA256 over both sides'
// random numbers):
//   listener -> rank: challenge;
//   rank -> listener: its number, process, program, a random number, proof;
//   listener -> rank: proof.
//
// A pending connection is one that has not authenticated yet. accept() serves all of them at once,
// so that a silent one delays no rank. There are at most kMaxPending. Each has kHandshake to
// authenticate. When there are kMaxPending and another peer connects, the oldest has only
// kMinHandshake.
//
// On one machine the socket is an abstract Unix socket (no file), and the peer must run as the same
// user. Across machines it is TCP on one address of this machine, not on all of them.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "parallel/comm/control/control_channel.h"

namespace trireme {

struct ControlAddress {
  std::string where;   // "unix:NAME" or "tcp:HOST:PORT"
  std::string secret;  // of the job: 64 hexadecimal digits

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
  // host: a name or address of this machine; empty: the address of its own host name. InputError if
  // it cannot be used.
  static ControlListener on_address(const std::string& host);

  const ControlAddress& address() const { return address_; }
  // Returns the next connection that proves to be a rank of this job and runs the same build;
  // nullptr: none within `limit`. Rejects all others, and logs the first ten as warnings. Only one
  // thread may call it.
  std::unique_ptr<ConnectedRank> accept(std::chrono::milliseconds limit);

 private:
  using Clock = std::chrono::steady_clock;
  struct PendingConnection {
    std::unique_ptr<ControlChannel> channel;
    std::string challenge;
    Clock::time_point came;
  };

  ControlListener(Socket socket, std::string where);
  std::vector<bool> wait_until(Clock::time_point end) const;
  std::unique_ptr<ConnectedRank> introduced(const std::vector<bool>& said);
  std::unique_ptr<ConnectedRank> connected_rank_of(PendingConnection& pending,
                                                   const Message& message) const;
  void turn_away_silent();
  void take_stranger();
  void turn_away(const char* why);

  Socket socket_;
  ControlAddress address_;
  std::vector<PendingConnection> pending_;  // oldest first
  Clock::time_point takes_again_{};         // no connection is accepted before this
  int64_t turned_away_ = 0;
};

// Connects a rank to the job's listener. Error(kLostRank) when no process listens within `limit`,
// or when it closes the connection, as it does if it rejects this rank. BadMessage when it is not
// the job's listener or does not respond in time. InputError if its host cannot be resolved.
std::unique_ptr<ControlChannel> connect_control_channel(const ControlAddress& address, int rank,
                                                        std::chrono::milliseconds limit);

}  // namespace trireme
