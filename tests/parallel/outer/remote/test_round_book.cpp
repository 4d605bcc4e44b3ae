#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>

#include "engine/core/error.h"
#include "parallel/outer/remote/round_book.h"

namespace trireme::test::test_round_book {
namespace {

using std::chrono::milliseconds;
using Arrival = RoundBook::Arrival;
using Closed = RoundBook::Closed;
using TimePoint = RoundBook::TimePoint;
using Rounds = std::vector<Closed>;

constexpr milliseconds kTimeout{1000};
constexpr Arrival kAccepted = Arrival::kAccepted;
constexpr Arrival kLate = Arrival::kLate;
constexpr Arrival kInvalid = Arrival::kInvalid;

// 5 s stand for the steady clock's arbitrary zero.
TimePoint at(int64_t ms) { return TimePoint(milliseconds(5000 + ms)); }

RoundBook joined_book(int sites, int fragments = 1) {
  RoundBook book(sites, fragments, kTimeout);
  for (int site = 0; site < sites; ++site) book.join(site, 0);
  return book;
}

TEST(RoundBook, RoundClosesOnceAllHaveArrived) {
  RoundBook book = joined_book(3);
  EXPECT_EQ(book.next_deadline(), std::nullopt);
  EXPECT_EQ(book.arrive(2, 0, 100, at(0)), kAccepted);
  EXPECT_EQ(book.arrive(0, 0, 100, at(1)), kAccepted);
  EXPECT_EQ(book.close_due(at(1)), Rounds());
  EXPECT_EQ(book.closed_step(0), 0);
  EXPECT_EQ(book.arrive(1, 0, 100, at(2)), kAccepted);
  EXPECT_EQ(book.close_due(at(2)), Rounds({{0, 100, {0, 1, 2}, {}}}));
  EXPECT_EQ(book.close_due(at(5000)), Rounds());
  EXPECT_EQ(book.next_deadline(), std::nullopt);
  EXPECT_EQ(book.closed_step(0), 100);
  EXPECT_EQ(book.newest_step(), 100);
}

TEST(RoundBook, TimeoutIsThatOfTheFirstUpdateToTheNanosecond) {
  constexpr std::chrono::nanoseconds kTick{1};
  RoundBook book = joined_book(3);
  EXPECT_EQ(book.close_due(at(1 << 20)), Rounds());  // no round is open: nothing times out
  book.arrive(1, 0, 100, at(7) + kTick);
  book.arrive(0, 0, 100, at(900));
  EXPECT_EQ(book.next_deadline(), at(1007) + kTick);
  EXPECT_EQ(book.close_due(at(1007)), Rounds());
  EXPECT_EQ(book.close_due(at(1007) + kTick), Rounds({{0, 100, {0, 1}, {2}}}));
  EXPECT_EQ(book.next_deadline(), std::nullopt);
}

TEST(RoundBook, LateSiteIsExpectedAgainFromTheStepItJoinsAt) {
  RoundBook book = joined_book(3);
  book.arrive(0, 0, 100, at(0));
  book.arrive(1, 0, 100, at(10));
  EXPECT_EQ(book.close_due(at(1000)), Rounds({{0, 100, {0, 1}, {2}}}));
  EXPECT_EQ(book.arrive(2, 0, 100, at(1001)), kLate);
  EXPECT_EQ(book.arrive(2, 0, 100, at(1002)), kLate);
  EXPECT_EQ(book.arrive(2, 0, 50, at(1003)), kLate);
  book.leave(2);
  book.join(2, book.newest_step());
  EXPECT_EQ(book.arrive(2, 0, 100, at(1004)), kInvalid);  // it has the weights of that step
  for (const int site : {0, 1, 2}) EXPECT_EQ(book.arrive(site, 0, 200, at(1500)), kAccepted);
  EXPECT_EQ(book.close_due(at(1500)), Rounds({{0, 200, {0, 1, 2}, {}}}));
}

TEST(RoundBook, LateSiteMayKeepItsStep) {
  RoundBook book = joined_book(2);
  book.arrive(0, 0, 100, at(0));
  book.close_due(at(1000));
  book.arrive(0, 0, 200, at(1100));
  EXPECT_EQ(book.arrive(1, 0, 100, at(1200)), kLate);
  EXPECT_EQ(book.close_due(at(1200)), Rounds());  // still expected
  EXPECT_EQ(book.arrive(1, 0, 200, at(1300)), kAccepted);
  EXPECT_EQ(book.close_due(at(1300)), Rounds({{0, 200, {0, 1}, {}}}));
}

TEST(RoundBook, LostSiteDoesNotDelayOthers) {
  RoundBook book = joined_book(3);
  book.arrive(0, 0, 100, at(0));
  book.arrive(1, 0, 100, at(1));
  EXPECT_EQ(book.close_due(at(2)), Rounds());
  book.leave(2);
  EXPECT_FALSE(book.is_member(2));
  EXPECT_EQ(book.close_due(at(2)), Rounds({{0, 100, {0, 1}, {}}}));
  EXPECT_EQ(book.arrive(2, 0, 100, at(3)), kInvalid);
}

TEST(RoundBook, UpdateOfALostSiteCounts) {
  RoundBook book = joined_book(3);
  book.arrive(2, 0, 100, at(0));
  book.leave(2);
  book.arrive(0, 0, 100, at(1));
  EXPECT_EQ(book.close_due(at(1)), Rounds());
  book.leave(1);
  EXPECT_EQ(book.close_due(at(1)), Rounds({{0, 100, {0, 2}, {}}}));
  book.arrive(0, 0, 200, at(2));
  book.leave(0);  // nobody is left
  EXPECT_EQ(book.close_due(at(2)), Rounds({{0, 200, {0}, {}}}));
}

TEST(RoundBook, SiteThatJoinsIsExpectedAboveItsStep) {
  RoundBook book(3, 1, kTimeout);
  book.join(0, 0);
  book.join(1, 0);
  book.arrive(0, 0, 100, at(0));
  book.join(2, 100);  // not in the open round
  EXPECT_EQ(book.arrive(2, 0, 100, at(1)), kInvalid);
  book.arrive(1, 0, 100, at(2));
  EXPECT_EQ(book.close_due(at(2)), Rounds({{0, 100, {0, 1}, {}}}));
  book.arrive(0, 0, 200, at(3));
  book.arrive(1, 0, 200, at(4));
  EXPECT_EQ(book.close_due(at(4)), Rounds());
  EXPECT_EQ(book.close_due(at(1003)), Rounds({{0, 200, {0, 1}, {2}}}));
}

TEST(RoundBook, OpenRoundWaitsForASiteThatJoinsBelowIt) {
  RoundBook book(2, 1, kTimeout);
  book.join(0, 0);
  book.arrive(0, 0, 100, at(0));
  book.join(1, 99);
  EXPECT_EQ(book.close_due(at(1)), Rounds());
  EXPECT_EQ(book.arrive(1, 0, 100, at(2)), kAccepted);
  EXPECT_EQ(book.close_due(at(2)), Rounds({{0, 100, {0, 1}, {}}}));
}

TEST(RoundBook, SingleSiteNeverWaits) {
  RoundBook book = joined_book(1);
  for (int64_t step = 100; step <= 500; step += 100) {
    EXPECT_EQ(book.arrive(0, 0, step, at(step)), kAccepted);
    EXPECT_EQ(book.close_due(at(step)), Rounds({{0, step, {0}, {}}}));
    EXPECT_EQ(book.newest_step(), step);
  }
}

TEST(RoundBook, FragmentsAreIndependent) {
  RoundBook book = joined_book(2, 3);
  book.arrive(0, 0, 100, at(0));
  book.arrive(0, 1, 133, at(10));
  book.arrive(0, 2, 166, at(20));
  book.arrive(1, 0, 100, at(30));
  EXPECT_EQ(book.close_due(at(30)), Rounds({{0, 100, {0, 1}, {}}}));
  EXPECT_EQ(book.arrive(0, 0, 200, at(40)), kAccepted);
  EXPECT_EQ(book.next_deadline(), at(1010));
  EXPECT_EQ(book.arrive(1, 2, 166, at(50)), kAccepted);  // out of the order of steps
  EXPECT_EQ(book.close_due(at(50)), Rounds({{2, 166, {0, 1}, {}}}));
  EXPECT_EQ(book.close_due(at(1010)), Rounds({{1, 133, {0}, {1}}}));
  EXPECT_EQ(book.next_deadline(), at(1040));
  EXPECT_EQ(book.close_due(at(1040)), Rounds({{0, 200, {0}, {1}}}));
  EXPECT_EQ(book.closed_step(0), 200);
  EXPECT_EQ(book.closed_step(1), 133);
  EXPECT_EQ(book.closed_step(2), 166);
  EXPECT_EQ(book.newest_step(), 200);
}

TEST(RoundBook, DueRoundsAreSortedByStepThenFragment) {
  RoundBook book = joined_book(1, 4);
  book.arrive(0, 3, 100, at(0));
  book.arrive(0, 1, 300, at(1));
  book.arrive(0, 2, 100, at(2));
  book.arrive(0, 0, 200, at(3));
  EXPECT_EQ(book.close_due(at(3)),
            Rounds({{2, 100, {0}, {}}, {3, 100, {0}, {}}, {0, 200, {0}, {}}, {1, 300, {0}, {}}}));
}

// A fragment with two open rounds: site 2 trains from a step above that of the first.
class TwoOpenRounds : public ::testing::Test {
 protected:
  TwoOpenRounds() {
    book.join(0, 0);
    book.join(1, 0);
    book.join(2, 150);
  }
  RoundBook book{3, 1, kTimeout};
};

TEST_F(TwoOpenRounds, CloseInTheOrderOfTheirSteps) {
  EXPECT_EQ(book.arrive(2, 0, 200, at(0)), kAccepted);
  EXPECT_EQ(book.arrive(0, 0, 100, at(100)), kAccepted);
  EXPECT_EQ(book.arrive(0, 0, 200, at(110)), kInvalid);  // it waits for round 100
  EXPECT_EQ(book.arrive(1, 0, 200, at(120)), kInvalid);  // it skips round 100
  EXPECT_EQ(book.next_deadline(), at(1000));
  EXPECT_EQ(book.arrive(1, 0, 100, at(200)), kAccepted);
  EXPECT_EQ(book.close_due(at(200)), Rounds({{0, 100, {0, 1}, {}}}));
  EXPECT_EQ(book.arrive(1, 0, 200, at(300)), kAccepted);
  EXPECT_EQ(book.arrive(0, 0, 200, at(400)), kAccepted);
  EXPECT_EQ(book.close_due(at(400)), Rounds({{0, 200, {0, 1, 2}, {}}}));
}

TEST_F(TwoOpenRounds, TimeOfTheLaterOneClosesBoth) {
  book.arrive(2, 0, 200, at(0));
  book.arrive(0, 0, 100, at(100));
  EXPECT_EQ(book.close_due(at(999)), Rounds());
  EXPECT_EQ(book.close_due(at(1000)), Rounds({{0, 100, {0}, {1}}, {0, 200, {2}, {0, 1}}}));
  EXPECT_EQ(book.arrive(1, 0, 100, at(1001)), kLate);
}

TEST_F(TwoOpenRounds, TimeOfTheEarlierOneClosesItAlone) {
  book.arrive(0, 0, 100, at(0));
  book.arrive(2, 0, 200, at(1));
  EXPECT_EQ(book.close_due(at(1000)), Rounds({{0, 100, {0}, {1}}}));
  EXPECT_EQ(book.close_due(at(1001)), Rounds({{0, 200, {2}, {0, 1}}}));
}

TEST_F(TwoOpenRounds, CloseTogetherIfTheCallerIsLate) {
  book.arrive(0, 0, 100, at(0));
  book.arrive(2, 0, 200, at(1));
  EXPECT_EQ(book.close_due(at(1001)), Rounds({{0, 100, {0}, {1}}, {0, 200, {2}, {0, 1}}}));
}

TEST_F(TwoOpenRounds, LossOfTheOthersClosesBoth) {
  book.arrive(2, 0, 200, at(0));
  book.arrive(0, 0, 100, at(100));
  book.leave(0);
  EXPECT_EQ(book.close_due(at(101)), Rounds());
  book.leave(1);
  EXPECT_EQ(book.close_due(at(101)), Rounds({{0, 100, {0}, {}}, {0, 200, {2}, {}}}));
}

// Site 0's update of round 200 is from before it left, so that the round has all updates; round 100
// expects site 0.
TEST_F(TwoOpenRounds, TheLaterOneWaitsWithAllUpdates) {
  book.leave(0);
  book.join(0, 100);
  book.arrive(0, 0, 200, at(0));
  book.arrive(2, 0, 200, at(1));
  book.leave(0);
  book.arrive(1, 0, 100, at(2));
  book.join(0, 0);
  book.leave(1);
  EXPECT_EQ(book.close_due(at(3)), Rounds());
  EXPECT_EQ(book.arrive(0, 0, 100, at(4)), kAccepted);
  EXPECT_EQ(book.close_due(at(4)), Rounds({{0, 100, {0, 1}, {}}, {0, 200, {0, 2}, {}}}));
}

TEST(RoundBook, SiteThatJoinsAgainMaySendItsUpdateOnceMore) {
  RoundBook book = joined_book(2);
  EXPECT_EQ(book.arrive(0, 0, 100, at(0)), kAccepted);
  EXPECT_EQ(book.arrive(0, 0, 100, at(1)), kInvalid);
  book.leave(0);
  book.join(0, 0);
  EXPECT_EQ(book.arrive(0, 0, 200, at(2)), kInvalid);  // it skips the open round
  EXPECT_EQ(book.arrive(0, 0, 100, at(3)), kAccepted);
  EXPECT_EQ(book.arrive(0, 0, 100, at(4)), kInvalid);
  EXPECT_EQ(book.next_deadline(), at(1000));  // that of the first update
  book.arrive(1, 0, 100, at(5));
  EXPECT_EQ(book.close_due(at(5)), Rounds({{0, 100, {0, 1}, {}}}));
}

TEST(RoundBook, RoundDoesNotWaitForASecondUpdate) {
  RoundBook book = joined_book(2);
  book.arrive(0, 0, 100, at(0));
  book.leave(0);
  book.join(0, 0);
  book.arrive(1, 0, 100, at(1));
  EXPECT_EQ(book.close_due(at(1)), Rounds({{0, 100, {0, 1}, {}}}));
  EXPECT_EQ(book.arrive(0, 0, 100, at(2)), kLate);
}

TEST(RoundBook, HostileUpdatesChangeNothing) {
  constexpr int64_t kHuge = std::numeric_limits<int64_t>::max(), kLeast = -kHuge - 1;
  constexpr int kLast = std::numeric_limits<int>::max();
  RoundBook book(3, 2, kTimeout);
  book.join(0, 50);
  book.join(1, 50);
  for (const int site : {-kLast - 1, -1, 2, 3, kLast})
    EXPECT_EQ(book.arrive(site, 0, 100, at(0)), kInvalid) << site;
  for (const int fragment : {-kLast - 1, -1, 2, kLast})
    EXPECT_EQ(book.arrive(0, fragment, 100, at(0)), kInvalid) << fragment;
  for (const int64_t step : {kLeast, int64_t{-1}, int64_t{0}, int64_t{1}, int64_t{50}})
    EXPECT_EQ(book.arrive(0, 0, step, at(0)), kInvalid) << step;
  EXPECT_EQ(book.next_deadline(), std::nullopt);

  EXPECT_EQ(book.arrive(0, 0, 100, at(1)), kAccepted);
  for (const int64_t step : {int64_t{99}, int64_t{100}, int64_t{101}, kHuge})
    EXPECT_EQ(book.arrive(0, 0, step, at(2)), kInvalid) << step;
  EXPECT_EQ(book.arrive(1, 0, 101, at(2)), kInvalid);
  EXPECT_EQ(book.arrive(1, 0, kHuge, at(2)), kInvalid);
  EXPECT_EQ(book.next_deadline(), at(1001));
  EXPECT_EQ(book.arrive(1, 0, 100, at(3)), kAccepted);
  EXPECT_EQ(book.close_due(at(3)), Rounds({{0, 100, {0, 1}, {}}}));
  EXPECT_EQ(book.arrive(0, 0, 50, at(4)), kInvalid);  // not above the step it joined at
  EXPECT_EQ(book.arrive(0, 0, 51, at(4)), kLate);
}

TEST(RoundBook, LargestStepIsAStep) {
  constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();
  RoundBook book = joined_book(1);
  EXPECT_EQ(book.arrive(0, 0, kHuge, at(0)), kAccepted);
  EXPECT_EQ(book.close_due(at(0)), Rounds({{0, kHuge, {0}, {}}}));
  EXPECT_EQ(book.arrive(0, 0, kHuge, at(1)), kLate);
}

TEST(RoundBook, StartFromLoadedWeights) {
  RoundBook book(2, 2, kTimeout);
  EXPECT_EQ(book.newest_step(), 0);
  book.set_closed(0, 100);
  book.set_closed(1, 150);
  EXPECT_EQ(book.closed_step(0), 100);
  EXPECT_EQ(book.newest_step(), 150);
  book.join(0, book.newest_step());
  book.join(1, 0);
  EXPECT_EQ(book.arrive(0, 0, 150, at(0)), kInvalid);
  EXPECT_EQ(book.arrive(1, 1, 150, at(0)), kLate);
  EXPECT_EQ(book.arrive(1, 0, 150, at(0)), kAccepted);
  EXPECT_EQ(book.close_due(at(0)), Rounds({{0, 150, {1}, {}}}));
}

TEST(RoundBook, RefusesErrorsOfItsCaller) {
  EXPECT_THROW(RoundBook(0, 1, kTimeout), CheckFailed);
  EXPECT_THROW(RoundBook(-1, 1, kTimeout), CheckFailed);
  EXPECT_THROW(RoundBook(1, 0, kTimeout), CheckFailed);
  EXPECT_THROW(RoundBook(1, 1, milliseconds(0)), CheckFailed);
  EXPECT_THROW(RoundBook(1, 1, milliseconds::max()), CheckFailed);
  RoundBook book(2, 2, kTimeout);
  EXPECT_THROW(book.leave(0), CheckFailed);
  book.join(0, 0);
  EXPECT_THROW(book.join(0, 100), CheckFailed);
  EXPECT_THROW(book.join(1, -1), CheckFailed);
  EXPECT_THROW(book.join(2, 0), CheckFailed);
  EXPECT_THROW(book.join(-1, 0), CheckFailed);
  EXPECT_THROW(book.leave(2), CheckFailed);
  EXPECT_THROW(book.closed_step(2), CheckFailed);
  EXPECT_THROW(book.closed_step(-1), CheckFailed);
  EXPECT_THROW(book.set_closed(2, 0), CheckFailed);
  EXPECT_THROW(book.set_closed(0, -1), CheckFailed);
  EXPECT_FALSE(book.is_member(1));
  EXPECT_FALSE(book.is_member(2));
  EXPECT_FALSE(book.is_member(-1));
  EXPECT_TRUE(book.is_member(0));
  book.arrive(0, 0, 100, at(0));
  EXPECT_THROW(book.set_closed(0, 100), CheckFailed);
  book.set_closed(1, 100);
  EXPECT_THROW(book.set_closed(1, 99), CheckFailed);
}

// The same rules from a list of the updates of open rounds, without any state that is derived.
struct NaiveBook {
  struct Membership {
    int site = 0;
    int64_t joined = 0;
    bool ended = false;
  };
  struct Update {
    size_t membership = 0;
    int fragment = 0;
    int64_t step = 0;
    TimePoint time;
  };
  std::vector<Membership> memberships;
  std::vector<Update> updates;    // accepted, of open rounds, in the order of time
  std::map<int, int64_t> closed;  // by fragment

  std::optional<size_t> membership(int site) const {
    for (size_t i = 0; i < memberships.size(); ++i)
      if (memberships[i].site == site && !memberships[i].ended) return i;
    return std::nullopt;
  }
  Arrival arrive(int site, int fragment, int64_t step, TimePoint now, int fragments) {
    const auto m = membership(site);
    if (!m || fragment < 0 || fragment >= fragments || step <= memberships[*m].joined)
      return kInvalid;
    for (const Update& u : updates) {
      if (u.fragment != fragment) continue;
      if (u.membership == *m) return kInvalid;
      if (u.step > memberships[*m].joined && u.step < step) return kInvalid;
    }
    if (step <= closed[fragment]) return kLate;
    updates.push_back({*m, fragment, step, now});
    return kAccepted;
  }
  TimePoint deadline(int fragment, int64_t step) const {
    const auto first = std::find_if(updates.begin(), updates.end(), [&](const Update& u) {
      return u.fragment == fragment && u.step == step;
    });
    return first->time + kTimeout;
  }
  Closed state_of(int fragment, int64_t step) const {
    std::set<int> arrived, absent;
    for (const Update& u : updates)
      if (u.fragment == fragment && u.step == step) arrived.insert(memberships[u.membership].site);
    for (const Membership& m : memberships)
      if (!m.ended && m.joined < step && !arrived.contains(m.site)) absent.insert(m.site);
    return {fragment, step, {arrived.begin(), arrived.end()}, {absent.begin(), absent.end()}};
  }
  // A round is due if its time is up, or that of a later one, or if it and all earlier ones have
  // all updates.
  bool is_due(const Update& round, TimePoint now) const {
    bool is_complete = true;
    for (const Update& u : updates) {
      if (u.fragment != round.fragment) continue;
      if (u.step >= round.step && now >= deadline(u.fragment, u.step)) return true;
      if (u.step <= round.step && !state_of(u.fragment, u.step).absent.empty()) is_complete = false;
    }
    return is_complete;
  }
  Rounds close_due(TimePoint now) {
    std::set<std::pair<int64_t, int>> due;
    for (const Update& u : updates)
      if (is_due(u, now)) due.insert({u.step, u.fragment});
    Rounds result;
    for (const auto& [step, fragment] : due) result.push_back(state_of(fragment, step));
    for (const auto& [step, fragment] : due) closed[fragment] = std::max(closed[fragment], step);
    std::erase_if(updates, [&](const Update& u) { return due.contains({u.step, u.fragment}); });
    return result;
  }
  std::optional<TimePoint> next_deadline() const {
    std::optional<TimePoint> next;
    for (const Update& u : updates)
      if (!next || deadline(u.fragment, u.step) < *next) next = deadline(u.fragment, u.step);
    return next;
  }
};

// Sites that mostly follow the rules, at random speeds, in a book and in the naive one.
class Walk {
 public:
  static constexpr int kSites = 5, kFragments = 3;
  static constexpr int64_t kPeriod = 10;

  explicit Walk(unsigned seed) : random_(seed) {}

  void step() {
    const TimePoint before = now_;
    now_ += milliseconds(below(120));
    // The hub's loop: it wakes at each deadline.
    for (auto due = book_.next_deadline(); due && *due <= now_; due = book_.next_deadline()) {
      ASSERT_GT(*due, before);
      close(*due);
      if (::testing::Test::HasFatalFailure()) return;
    }
    const int site = static_cast<int>(below(kSites)), kind = static_cast<int>(below(100));
    if (kind < 10) {
      change_membership(site);
    } else if (kind < 90) {
      arrive(site, static_cast<int>(below(kFragments)), false);
    } else {
      arrive(static_cast<int>(below(kSites + 2)) - 1, static_cast<int>(below(kFragments + 2)) - 1,
             true);
    }
    if (::testing::Test::HasFatalFailure()) return;
    ASSERT_EQ(book_.next_deadline(), naive_.next_deadline());
    if (below(20) != 0) close(now_);  // sometimes several events come before it
  }

  int accepted = 0, late = 0, invalid = 0;                      // arrivals
  int complete = 0, timed_out = 0, with_later = 0, resent = 0;  // closed rounds; updates

 private:
  int64_t below(int64_t n) { return static_cast<int64_t>(random_() % static_cast<unsigned>(n)); }

  void change_membership(int site) {
    ASSERT_EQ(book_.is_member(site), naive_.membership(site).has_value());
    if (const auto m = naive_.membership(site)) {
      book_.leave(site);
      naive_.memberships[*m].ended = true;
      if (below(2) != 0) return;  // else it is restarted
    }
    // From the newest weights, or others.
    const int64_t from = std::max<int64_t>(
        0, book_.newest_step() + (below(3) != 0 ? 0 : below(4 * kPeriod) - 2 * kPeriod));
    book_.join(site, from);
    naive_.memberships.push_back({site, from});
    sent_[site].clear();
  }

  void arrive(int site, int fragment, bool hostile) {
    const auto m = naive_.membership(site);
    if (!m && !hostile) return;
    // Its next step by the rules, or any.
    const int64_t after = m ? std::max(naive_.memberships[*m].joined, sent_[site][fragment]) : 0;
    int64_t step = (after / kPeriod + 1) * kPeriod;
    if (hostile) step += (below(7) - 3) * kPeriod / (1 + below(2));
    const Arrival arrival = book_.arrive(site, fragment, step, now_);
    const size_t before = naive_.updates.size();
    ASSERT_EQ(arrival, naive_.arrive(site, fragment, step, now_, kFragments))
        << "site " << site << ", fragment " << fragment << ", step " << step;
    ++(arrival == kAccepted ? accepted : arrival == kLate ? late : invalid);
    if (arrival != kInvalid) sent_[site][fragment] = step;
    if (arrival != kAccepted) return;
    ASSERT_TRUE(book_.is_member(site));
    ASSERT_EQ(naive_.updates.size(), before + 1);
    if (!members_[{fragment, step}].insert(site).second) ++resent;
    opened_.try_emplace({fragment, step}, now_);
  }

  void close(TimePoint now) {
    std::map<int, int64_t> last;
    for (int f = 0; f < kFragments; ++f) last[f] = book_.closed_step(f);
    const Rounds rounds = book_.close_due(now);
    ASSERT_EQ(rounds, naive_.close_due(now));
    std::pair<int64_t, int> order{0, 0};
    for (const Closed& round : rounds) {
      const std::pair<int, int64_t> key{round.fragment, round.step};
      ASSERT_LT(order, (std::pair<int64_t, int>{round.step, round.fragment}));
      order = {round.step, round.fragment};
      ASSERT_GT(round.step, last.at(round.fragment));  // in order, and so at most once
      last[round.fragment] = round.step;
      ASSERT_LE(now, opened_.at(key) + kTimeout);
      ASSERT_EQ(std::set<int>(round.arrived.begin(), round.arrived.end()), members_.at(key));
      for (const int site : round.absent) ASSERT_TRUE(book_.is_member(site));
      ++(round.absent.empty()                ? complete
         : now == opened_.at(key) + kTimeout ? timed_out
                                             : with_later);
    }
    for (const auto& [fragment, step] : last) ASSERT_EQ(book_.closed_step(fragment), step);
    ASSERT_EQ(book_.close_due(now), Rounds());
  }

  std::mt19937 random_;
  RoundBook book_{kSites, kFragments, kTimeout};
  NaiveBook naive_;
  TimePoint now_ = at(0);
  std::map<int, std::map<int, int64_t>> sent_;                // by site, fragment
  std::map<std::pair<int, int64_t>, std::set<int>> members_;  // at arrival, by round
  std::map<std::pair<int, int64_t>, TimePoint> opened_;
};

TEST(RoundBook, RandomWalksAreThoseOfANaiveBook) {
  for (const unsigned seed : {1u, 2u, 3u}) {
    Walk walk(seed);
    for (int event = 0; event < 10000; ++event) {
      walk.step();
      if (HasFatalFailure()) FAIL() << "seed " << seed << ", event " << event;
    }
    // Every branch is taken many times.
    EXPECT_GT(walk.accepted, 1000);
    EXPECT_GT(walk.late, 100);
    EXPECT_GT(walk.invalid, 100);
    EXPECT_GT(walk.complete, 100);
    EXPECT_GT(walk.timed_out, 100);
    EXPECT_GT(walk.with_later, 10);
    EXPECT_GT(walk.resent, 10);
  }
}

}  // namespace
}  // namespace trireme::test::test_round_book
