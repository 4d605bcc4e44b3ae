// Rounds between sites that are jobs of their own (docs/design/outer.md): which updates a round
// waits for, and when it closes. Pure state: no I/O and no threads, and time is an argument.
//
// A fragment of the weights has rounds at increasing steps, from 1. A round opens with its first
// update. It expects an update of each member that trains from a step before it, so its expected
// sites change as sites join and leave.
//   closing  A round closes once the updates of all expected sites have arrived, or `timeout` after
//            its first update. An update of a site that has left counts.
//   order    Several rounds of a fragment may be open: a site that joins at step 150 may send its
//            update of step 200 before the others send theirs of step 100. They close in the order
//            of their steps. A round whose time is up therefore closes all earlier ones with it, so
//            that none is open for longer than `timeout`; one that has all updates waits for the
//            earlier ones.
//   sites    A site sends an update in each round that expects it, and the next one of a fragment
//            only after the round of the last one has closed.
//   late     A site whose round has closed without it needs the current weights. If it trains from
//            their step, it leaves and joins again, so that no open round waits for an update that
//            it skips.
//   rejoin   A site that joins again may repeat an update that it sent before it left, while the
//            round is open: the new one replaces the old one, which counts until then.
//
// The schedule of rounds is the caller's: it refuses an update of a step at which the fragment has
// no round, or that is not the site's next one. A round that one site opens far ahead would close
// after `timeout` and make all other sites late.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

namespace trireme {

class RoundBook {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  enum class Arrival {
    kAccepted,  // counts in its round; keep it, in place of one from before the site left
    kLate,      // the round has closed: drop it, and send the site the current weights
    kInvalid,   // no correct site sends it: drop it, and the site
  };
  struct Closed {
    int fragment = 0;
    int64_t step = 0;
    // Sites whose updates count, ascending. Those that have left since, and have not sent an update
    // of the round again, do not wait for the result.
    std::vector<int> arrived;
    std::vector<int> absent;  // expected sites without an update, ascending
    bool operator==(const Closed&) const = default;
  };

  // Sites 0 to sites - 1, none of them a member, and fragments 0 to fragments - 1, all closed up to
  // step 0. timeout: 1 ms to 365 days.
  RoundBook(int sites, int fragments, std::chrono::milliseconds timeout);

  // Makes a site a member that trains from `step`, at least 0. It must not be one. Rounds of later
  // steps expect it, also those that are open.
  void join(int site, int64_t step);
  // Ends the membership of a lost or finished site. Call close_due() afterwards.
  void leave(int site);
  bool is_member(int site) const;  // false for numbers that no site has

  // Records the arrival of a complete update; the arguments may be any numbers. kInvalid: the site
  // is no member, there is no such fragment, `step` is not above the one that the site joined at,
  // its last update of the fragment is in an open round, or it skips an open round that expects it.
  // Otherwise kLate: `step` is not above closed_step(). Call close_due() afterwards.
  Arrival arrive(int site, int fragment, int64_t step, TimePoint now);
  // Closes and returns the rounds that are due, in ascending order of step, then fragment.
  std::vector<Closed> close_due(TimePoint now);
  // Time at which the next round closes whether or not it has all updates; none: no round is open.
  std::optional<TimePoint> next_deadline() const;

  int64_t closed_step(int fragment) const;  // of the fragment's last closed round
  int64_t newest_step() const;              // maximum of closed_step() over all fragments
  // For a start from loaded weights: closed_step() = step, which must not be below it. The fragment
  // must have no open round.
  void set_closed(int fragment, int64_t step);

 private:
  struct Site {
    bool is_member = false;
    int64_t joined = 0;
    std::vector<int64_t> sent;  // by fragment: step of the last update since it joined; 0: none
  };
  struct Round {
    TimePoint deadline;
    std::set<int> arrived;
  };
  struct Fragment {
    int64_t closed = 0;
    std::map<int64_t, Round> open;  // by step, all above closed
  };
  std::vector<int> absent_sites(int64_t step, const Round& round) const;
  Closed close_first(int fragment);
  size_t site_index(int site) const;  // checked
  size_t fragment_index(int fragment) const;

  std::chrono::milliseconds timeout_;
  std::vector<Site> sites_;
  std::vector<Fragment> fragments_;
};

}  // namespace trireme
