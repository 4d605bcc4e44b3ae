// Messages between a site and the hub of a run whose sites are jobs of their own, over a control
// channel (parallel/comm/control/control_channel.h). Numbers are little-endian.
//
//   site -> hub   join    a Join, as text; number: step of its weights
//                 state   number: fragment; its shared weights and momentum (WholeModel)
//                 update  number: fragment; UpdateHeader and the codes of its units
//                 leave   number: 1 at the end of the run, 0 if it stops before
//   hub -> site   refuse  the reason, as text; then the hub closes the connection
//                 donate  the hub has no weights: send those of all fragments
//                 start   number: step to train from; a snapshot, or nothing if the site has these
//                         weights
//                 sum     number: fragment; SumHeader, report, and the codes of the units' sums
//                 replace number: fragment whose round has closed without the site; a snapshot, or
//                         its header if the site has got these weights
//
// A snapshot is a SnapshotHeader and the states of all fragments, after all rounds whose results
// the hub has sent before, and before those whose results it sends later. A site that has skipped
// many rounds of one fragment has skipped those of the others too: with the weights of one fragment
// only, it would train layers of different ages.
#pragma once

#include <cstdint>

#include "parallel/comm/control/control_rendezvous.h"

namespace trireme {

// Names of both ends; the protocol changes with these messages.
inline constexpr ControlPeers kSitePeers{
    .one = "site", .all = "sites", .listener = "the rendezvous", .protocol = 1};

inline constexpr int64_t kMaxJoinBytes = 16 << 20;
inline constexpr int64_t kMaxHubBytes = int64_t{1} << 40;  // memory is allocated as bytes arrive

// Limits of a channel to an authenticated peer. timeout_s: of a peer that is unreachable,
// 30 s at least.
void prepare_site_channel(ControlChannel& channel, double timeout_s, int64_t max_payload);

enum class SiteMessage : uint32_t {
  kJoin = kFirstMessageKind,
  kState,
  kUpdate,
  kLeave,
  kRefuse,
  kDonate,
  kStart,
  kSum,
  kReplace,
};

struct UpdateHeader {
  int64_t step = 0;
  double left_out = 0;  // 1: not finite
  double squares = 0;   // of the update
  double loss = 0;      // mean since the site's last round; NaN: unknown
  double waited = 0;    // seconds in which the site waited for rounds since its last one
  double seconds = 0;   // since its last round
};

struct SumHeader {
  int64_t step = 0;
  int64_t reports = 0;  // number of doubles that follow: OuterState::OpenRound::report
};

struct SnapshotHeader {
  int64_t step = 0;  // to continue from, if it is above the site's
};

}  // namespace trireme
