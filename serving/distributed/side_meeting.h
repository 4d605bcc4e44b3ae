// How the side channels of a job come about: one process listens until all of its ranks have come, and then no more.
//
// Both sides prove that they know the job's secret without sending it (HMAC-SHA256 over both sides' random numbers):
//   listener -> rank: challenge; rank -> listener: its number, process, program, a random number, proof;
//   listener -> rank: proof.
// On one machine the socket is a Unix socket without a file, and the other process must be the same user's. Across
// machines it is TCP on one address of this machine, not on all of them.
#pragma once

#include <memory>
#include <string>

#include "serving/distributed/side_channel.h"

namespace trireme {

struct SideAddress {
  std::string where;   // "unix:NAME" or "tcp:HOST:PORT"
  std::string secret;  // of the job: 64 hex digits

  // Both in one line, for a rank's environment or a broadcast. parse() throws InputError.
  std::string line() const;
  static SideAddress parse(const std::string& line);
};

class SideListener {
 public:
  struct Guest {
    int rank = 0;
    int process = 0;  // where it lives
    std::unique_ptr<SideChannel> channel;
  };

  static SideListener on_this_machine();
  // host: a name or an address of this machine; empty: what its own name stands for.
  static SideListener on_address(const std::string& host);

  const SideAddress& address() const { return address_; }
  // The next that proves to be a rank of this job and runs this program; none within `limit`. Others are turned away,
  // each within two seconds, with a warning.
  std::unique_ptr<Guest> accept(std::chrono::milliseconds limit);

 private:
  SideListener(Socket socket, std::string where);
  std::unique_ptr<Guest> meet(Socket socket) const;

  Socket socket_;
  SideAddress address_;
};

// A rank's end. Error(kLostRank) when nobody is there within `limit`; BadMessage when it is not the job's listener.
std::unique_ptr<SideChannel> connect_side_channel(const SideAddress& address, int rank,
                                                  std::chrono::milliseconds limit);

}  // namespace trireme
