#include "parallel/comm/liveness/peer_links.h"

#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cmath>

namespace trireme {
namespace {

constexpr char kBeat = 'b', kGoodbye = 'g', kTerminating = 't', kEnd = '\n';
// A loss report is one of these letters, the text of the reason, and kEnd.
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

// Silence after which a peer is examined, and time without an acknowledgement after which its
// machine counts as mute.
constexpr double kSuspiciousLink = 2;

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
    if (watched(peer)) open.push_back(peer.fd);
  return open;
}

void PeerLinks::send_all(const std::string& bytes) {
  for (Peer& peer : peers_) {
    if (!watched(peer)) continue;
    // A full buffer means that the peer does not read: dropping the bytes loses nothing.
    const ssize_t sent = send(peer.fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) peer.sent += sent;
  }
}

void PeerLinks::beat() { send_all(std::string(1, kBeat)); }
void PeerLinks::say_terminated() { send_all(std::string(1, kTerminating)); }
void PeerLinks::say_goodbye() { send_all(std::string(1, kGoodbye)); }

void PeerLinks::broadcast_loss(const std::string& reason, LossCause cause) {
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
  } else if (byte == kTerminating) {
    peer.terminated = true;
  } else if (byte != kBeat) {
    peer.telling = true;
    peer.text = byte;
  }
}

void PeerLinks::read_news(Peer& peer, Liveness& liveness) {
  char bytes[512];
  while (watched(peer)) {
    const ssize_t got = recv(peer.fd, bytes, sizeof bytes, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return;
    if (got <= 0) {
      peer.closed = true;
      liveness.report_lost(concat(liveness.who(peer.world_rank), " died: its connection ended"),
                           LossCause::kDied);
      return;
    }
    peer.silent = peer.mute = peer.mute_until = 0;
    for (ssize_t k = 0; k < got && watched(peer); ++k) take(peer, bytes[k], liveness);
  }
}

void PeerLinks::look(double counted, Liveness& liveness) {
  for (Peer& peer : peers_) {
    if (peer.closed) continue;
    peer.silent += counted;
    read_news(peer, liveness);
    if (peer.terminated && peer.silent > kTerminationGrace) {
      peer.closed = true;
      liveness.report_lost(concat(liveness.who(peer.world_rank), " was ended by SIGTERM"),
                           LossCause::kDied);
    }
    if (!watched(peer) || peer.silent < kSuspiciousLink) continue;
    look_at_machine(peer, counted);
    look_at_silent(peer, liveness);
  }
}

// Bytes acknowledged since the last check were received by a machine that runs.
void PeerLinks::look_at_machine(Peer& peer, double counted) {
  int pending = 0;
  if (ioctl(peer.fd, SIOCOUTQ, &pending) != 0) return;
  const int64_t acknowledged = peer.sent - pending;
  const bool acknowledges = pending == 0 || acknowledged > peer.acknowledged;
  peer.acknowledged = acknowledged;
  peer.mute = acknowledges ? 0 : peer.mute + counted;
  if (peer.mute >= kSuspiciousLink) peer.mute_until = peer.silent;
}

// After a mute period the process gets the full time again: its beats are resent only later.
void PeerLinks::look_at_silent(const Peer& peer, Liveness& liveness) {
  const bool acknowledges = peer.mute < kSuspiciousLink;
  const bool unresponsive = acknowledges && peer.silent - peer.mute_until >= kUnresponsiveSeconds;
  if (!unresponsive && peer.silent < kHangsSeconds) return;
  const double seconds = std::round(peer.silent * 10) / 10;
  liveness.report_lost(concat(liveness.who(peer.world_rank), " has not run for ", seconds, " s: ",
                              acknowledges ? "stopped, or its machine gives it no processor"
                                           : "its machine or the network hangs"),
                       LossCause::kSilent);
}

}  // namespace trireme
