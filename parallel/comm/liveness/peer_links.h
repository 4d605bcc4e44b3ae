// Signs of life between ranks that share no board: one TCP connection each, apart from the
// messages.
//
// Every beat is one byte. A connection that ends without a goodbye means that the peer's process
// has died; one that stays silent while the peer's kernel still acknowledges our beats, that the
// process does not run; one that acknowledges nothing, that its machine or the network hangs. A
// loss known to one rank is passed on with its reason, so that every rank names the same one.
#pragma once

#include "parallel/comm/liveness/liveness.h"

namespace trireme {

// The peer's kernel answers and the process does not: given up after this long. A process that only
// computes beats from a thread of its own; one that was stopped cannot be told from one that gets
// no processor, so this is longer than kStoppedSeconds. The other limit is kHangsSeconds
// (liveness.h).
inline constexpr double kUnansweredSeconds = 9;

// Used by one thread at a time (the watchdog's). Borrows the descriptors, which must be
// non-blocking.
class PeerLinks {
 public:
  PeerLinks() = default;
  // descriptors: by world rank; -1 where there is nothing to watch.
  explicit PeerLinks(const std::vector<int>& descriptors);

  // Of peers that may still be lost; to be polled for POLLRDHUP, the end of the connection. Beats
  // need not be read as they come.
  std::vector<int> descriptors() const;
  void beat();
  void look(double counted, Liveness& liveness);  // as Liveness::look
  // The last words of this rank: the first loss it knows, that a SIGTERM ends it now, or goodbye.
  void tell_lost(const std::string& reason, LossCause cause);
  void say_terminated();
  void say_goodbye();

 private:
  struct Peer {
    int world_rank = 0;
    int fd = -1;
    bool closed = false;      // it said goodbye, or its end is known
    bool terminated = false;  // it said that a SIGTERM ends it
    bool telling = false;     // it is telling its loss; the text so far:
    std::string text;
    // Counted seconds: without news from the process; without an acknowledgement from its machine;
    // and how long it had been silent when the machine was last found mute.
    double silent = 0, mute = 0, mute_until = 0;
    int64_t sent = 0;  // bytes, and those that had been acknowledged at the last look
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
