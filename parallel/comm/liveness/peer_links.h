// Heartbeats between ranks that share no board, over one TCP connection per pair, separate from the
// messages.
//
// Every beat is one byte. A connection that ends without a goodbye means that the peer's process
// has died; silence while the peer's kernel still acknowledges our beats, that the process does not
// run; no acknowledgement either, that its machine or the network hangs. A rank that knows of a
// loss passes it on with the reason, so that every rank reports the same one.
#pragma once

#include "parallel/comm/liveness/liveness.h"

namespace trireme {

// Silence after which a process counts as lost while its kernel still acknowledges our beats; if
// that does not either, the limit is kHangsSeconds (liveness.h). A process that computes still
// beats from a separate thread. A stopped process cannot be distinguished here from one that gets
// no processor, so this is longer than kStoppedSeconds.
inline constexpr double kUnresponsiveSeconds = 9;

// Used by one thread at a time (the watchdog's). Borrows the descriptors, which must be
// non-blocking.
class PeerLinks {
 public:
  PeerLinks() = default;
  // descriptors: by world rank; -1: no link to that rank.
  explicit PeerLinks(const std::vector<int>& descriptors);

  // Descriptors of peers that may still be lost, to poll for POLLRDHUP, the end of the connection.
  // Beats need not be read as they arrive.
  std::vector<int> descriptors() const;
  void beat();
  void look(double counted, Liveness& liveness);  // as Liveness::look
  // Final message of this rank: a loss and its reason, its end by SIGTERM, or its normal end.
  void broadcast_loss(const std::string& reason, LossCause cause);
  void say_terminated();
  void say_goodbye();

 private:
  struct Peer {
    int world_rank = 0;
    int fd = -1;
    bool closed = false;      // it sent a goodbye, or its end is known
    bool terminated = false;  // it reported that a SIGTERM ends it
    bool telling = false;     // a loss report is partly received, in `text`
    std::string text;
    // Counted seconds. silent: without a byte from the process. mute: without an acknowledgement
    // from its machine. mute_until: value of `silent` when the machine last was mute.
    double silent = 0, mute = 0, mute_until = 0;
    int64_t sent = 0;  // bytes, and those acknowledged at the last check
    int64_t acknowledged = 0;
  };
  static bool watched(const Peer& peer) { return !peer.closed && !peer.terminated; }
  static void read_news(Peer& peer, Liveness& liveness);
  static void look_at_machine(Peer& peer, double counted);
  static void look_at_silent(const Peer& peer, Liveness& liveness);
  static void take(Peer& peer, char byte, Liveness& liveness);
  void send_all(const std::string& bytes);

  std::vector<Peer> peers_;
};

}  // namespace trireme
