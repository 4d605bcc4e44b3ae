#include "parallel/comm/peer_links.h"

#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cmath>

namespace trireme {
namespace {

constexpr char kBeat = 'b', kGoodbye = 'g', kEnd = '\n';
// A loss is one of these, the reason's text, and kEnd.
constexpr char kReported = 'r', kDied = 'd', kSilent = 's';
constexpr size_t kLongestText = 4096;

char letter_of(LossCause cause) {
  return cause == LossCause::kDied ? kDied : cause == LossCause::kSilent ? kSilent : kReported;
}

LossCause cause_of(char letter) {
  return letter == kDied     ? LossCause::kDied
         : letter == kSilent ? LossCause::kSilent
                             : LossCause::kReported;
}

// Whether the peer's machine has acknowledged what we sent, but for the beats of the last two
// seconds: a peer whose machine or network hangs leaves more of them unacknowledged.
bool acknowledges(int fd) {
  constexpr int kRecentBeats = 20;
  int pending = 0;
  return ioctl(fd, SIOCOUTQ, &pending) == 0 && pending <= kRecentBeats;
}

}  // namespace

PeerLinks::PeerLinks(const std::vector<int>& descriptors) {
  for (size_t r = 0; r < descriptors.size(); ++r)
    if (descriptors[r] >= 0) {
      Peer peer;
      peer.world_rank = static_cast<int>(r);
      peer.fd = descriptors[r];
      peers_.push_back(peer);
    }
}

std::vector<int> PeerLinks::descriptors() const {
  std::vector<int> open;
  for (const Peer& peer : peers_)
    if (!peer.closed) open.push_back(peer.fd);
  return open;
}

void PeerLinks::send_all(const std::string& bytes) {
  for (const Peer& peer : peers_)
    if (!peer.closed)  // a full buffer means that nobody reads: nothing is lost by dropping it
        [[maybe_unused]]
      const ssize_t sent = send(peer.fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

void PeerLinks::beat() { send_all(std::string(1, kBeat)); }
void PeerLinks::say_goodbye() { send_all(std::string(1, kGoodbye)); }

void PeerLinks::tell_lost(const std::string& reason, LossCause cause) {
  std::string line = concat(letter_of(cause), reason.substr(0, kLongestText));
  std::ranges::replace(line, kEnd, ' ');
  send_all(line + kEnd);
}

void PeerLinks::take(Peer& peer, char byte, Liveness& liveness) {
  if (peer.telling) {
    if (byte != kEnd) {
      if (peer.text.size() <= kLongestText) peer.text += byte;
      return;
    }
    liveness.report_lost(peer.text.substr(1), cause_of(peer.text[0]));
    peer.telling = false;
    peer.closed = true;
  } else if (byte == kGoodbye) {
    peer.closed = true;
  } else if (byte != kBeat) {
    peer.telling = true;
    peer.text = byte;
  }
}

void PeerLinks::read_news(Peer& peer, Liveness& liveness) {
  char bytes[512];
  while (!peer.closed) {
    const ssize_t got = recv(peer.fd, bytes, sizeof bytes, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return;
    if (got <= 0) {
      peer.closed = true;
      liveness.report_lost(concat(liveness.who(peer.world_rank), " died: its connection ended"),
                           LossCause::kDied);
      return;
    }
    peer.silent = 0;
    for (ssize_t k = 0; k < got && !peer.closed; ++k) take(peer, bytes[k], liveness);
  }
}

void PeerLinks::look(double counted, Liveness& liveness) {
  for (Peer& peer : peers_) {
    if (peer.closed) continue;
    peer.silent += counted;
    read_news(peer, liveness);
    const bool answers = acknowledges(peer.fd);
    if (peer.closed || peer.silent < (answers ? kUnansweredSeconds : kHangsSeconds)) continue;
    const double seconds = std::round(peer.silent * 10) / 10;
    liveness.report_lost(concat(liveness.who(peer.world_rank), " has not run for ", seconds, " s: ",
                                answers ? "it was stopped" : "its machine or the network hangs"),
                         LossCause::kSilent);
  }
}

}  // namespace trireme
