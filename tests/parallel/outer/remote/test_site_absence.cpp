// Sites that are lost, late, or leave and come back.
#include <gtest/gtest.h>

#include "tests/parallel/outer/remote/site_run.h"

namespace trireme::test::test_site_absence {
namespace {

using Sites = std::vector<int>;

void expect_short_rounds(HubThread& hub, double timeout_s) {
  for (const HubRound& round : hub.rounds()) EXPECT_LT(round.seconds, timeout_s + 2);
}

bool is_absent(const HubRound& round, int site) {
  return std::ranges::count(round.absent, site) > 0;
}

TEST(SiteAbsence, OthersContinueWithoutAKilledSite) {
  const OuterConfig config = remote_config(3);
  HubThread hub(config);
  std::vector<std::future<SiteEnd>> sites;
  for (int site = 0; site < 2; ++site) sites.push_back(start_site(config, site, hub));
  auto killed = start_site(config, 2, hub, {.before = [](int64_t step) {
                             if (step == 5) throw SiteKilled();
                             return false;
                           }});
  EXPECT_EQ(error_of(std::move(killed)), "killed");
  for (const SiteEnd& end : ends_of(sites)) {
    EXPECT_EQ(end.rounds.front().absent, Sites{});
    EXPECT_EQ(end.rounds.back().absent, Sites{2});
  }
  EXPECT_TRUE(hub.has_ended());
  expect_short_rounds(hub, 0);  // it did not wait for the time limit
  for (const HubRound& round : hub.rounds()) {
    EXPECT_EQ(round.arrived, round.step == 3 ? (Sites{0, 1, 2}) : (Sites{0, 1}));
    EXPECT_EQ(round.absent, round.step == 3 ? (Sites{}) : (Sites{2}));
  }
}

void expect_late_site_catches_up(const OuterConfig& config) {
  HubThread hub(config, kShortTimeout);
  std::latch started(3);
  std::vector<std::future<SiteEnd>> sites;
  for (int site = 0; site < 3; ++site)
    sites.push_back(start_site(config, site, hub,
                               {.started = [&] { started.arrive_and_wait(); },
                                .before =
                                    [&, site](int64_t step) {
                                      if (site == 2 && step == 3)
                                        hub.await_round([](const HubRound& round) {
                                          return round.step >= 6 && is_absent(round, 2);
                                        });
                                      return false;
                                    }}));
  const std::vector<SiteEnd> ends = ends_of(sites);
  EXPECT_TRUE(ends[2].was_replaced());
  EXPECT_EQ(std::ranges::count(ends[2].steps, 6), 0) << "it jumps to the newest step";
  EXPECT_TRUE(hub.has_ended());
  expect_short_rounds(hub, kShortTimeout);
}

TEST(SiteAbsence, LateSiteCatchesUp) { expect_late_site_catches_up(remote_config(3)); }

TEST(SiteAbsence, LateSiteCatchesUpInAllFragments) {
  expect_late_site_catches_up(remote_config(3, 2));
}

TEST(SiteAbsence, LateSiteCatchesUpInOverlappedRounds) {
  expect_late_site_catches_up(remote_config(3, 2, 2));
}

TEST(SiteAbsence, LateSiteCatchesUpInTheWarmUp) {
  OuterConfig config = remote_config(3, 2);
  config.warmup_steps = 8;
  expect_late_site_catches_up(config);
}

TEST(SiteAbsence, RestartedSiteGetsTheCurrentWeights) {
  const OuterConfig config = remote_config(3);
  HubThread hub(config);
  Gate restarted;
  std::vector<std::future<SiteEnd>> sites;
  for (int site = 0; site < 2; ++site)
    sites.push_back(start_site(config, site, hub, {.before = [&](int64_t step) {
                                 if (step == 8) restarted.pass();
                                 return false;
                               }}));
  auto killed = start_site(config, 2, hub, {.before = [](int64_t step) {
                             if (step == 5) throw SiteKilled();
                             return false;
                           }});
  EXPECT_EQ(error_of(std::move(killed)), "killed");
  hub.await_step(6);
  sites.push_back(start_site(config, 2, hub, {.added = 5, .started = [&] { restarted.open(); }}));
  const std::vector<SiteEnd> ends = ends_of(sites);
  EXPECT_EQ(ends[2].started_at, 6);
  EXPECT_FALSE(ends[2].was_replaced());
  EXPECT_TRUE(hub.has_ended());
  for (const HubRound& round : hub.rounds())
    EXPECT_EQ(round.absent, round.step == 6 ? (Sites{2}) : (Sites{})) << round.step;
}

// Site 1 holds the run open after the last round, which has closed without it.
TEST(SiteAbsence, SiteJoinsAtTheEnd) {
  const OuterConfig config = remote_config(3);
  HubThread hub(config, kShortTimeout);
  std::latch started(2);
  Gate joined;
  const auto arrive = [&] { started.arrive_and_wait(); };
  std::vector<std::future<SiteEnd>> sites;
  sites.push_back(start_site(config, 0, hub, {.started = arrive}));
  sites.push_back(start_site(config, 1, hub, {.started = arrive, .before = [&](int64_t step) {
                                                if (step == 12) joined.pass();
                                                return false;
                                              }}));
  hub.await_step(12);
  sites.push_back(start_site(config, 2, hub, {.added = 5, .started = [&] { joined.open(); }}));
  const std::vector<SiteEnd> ends = ends_of(sites);
  EXPECT_EQ(ends[2].started_at, 12);
  EXPECT_TRUE(ends[2].steps.empty());
  EXPECT_TRUE(ends[1].was_replaced());
  EXPECT_TRUE(hub.has_ended());
}

TEST(SiteAbsence, SiteLeavesBeforeTheEnd) {
  const OuterConfig config = remote_config(3);
  HubThread hub(config);
  std::vector<std::future<SiteEnd>> sites;
  for (int site = 0; site < 2; ++site) sites.push_back(start_site(config, site, hub));
  auto leaving = start_site(config, 2, hub, {.last_step = 7});
  EXPECT_EQ(leaving.get().rounds.size(), 2u);
  ends_of(sites);
  EXPECT_TRUE(hub.has_ended());
  EXPECT_EQ(hub.rounds().back().absent, Sites{2});
}

TEST(SiteAbsence, UpdateThatIsNotFiniteIsLeftOut) {
  const OuterConfig config = remote_config(3);
  HubThread hub(config);
  std::vector<std::future<SiteEnd>> sites;
  for (int site = 0; site < 3; ++site)
    sites.push_back(start_site(config, site, hub,
                               {.before = [=](int64_t step) { return site == 1 && step == 5; }}));
  for (const SiteEnd& end : ends_of(sites)) {
    EXPECT_TRUE(std::isfinite(end.weights.front()));
    ASSERT_EQ(end.rounds.size(), 4u);
    EXPECT_EQ(end.rounds[1].left_out, Sites{1});
    EXPECT_EQ(end.rounds[2].left_out, Sites{});
  }
  EXPECT_TRUE(hub.has_ended());
  for (const HubRound& round : hub.rounds()) {
    EXPECT_EQ(round.arrived, (Sites{0, 1, 2}));
    EXPECT_EQ(round.not_finite, round.step == 6 ? (Sites{1}) : (Sites{}));
  }
}

// Sites 0 to 4 are killed twice each and come back, half of them after a round.
TEST(SiteAbsence, TenSitesLeaveAndTenJoin) {
  const OuterConfig config = remote_config(8, 2);
  HubThread hub(config, kShortTimeout);
  std::latch started(8), returned(5);
  std::vector<std::future<SiteEnd>> sites;
  for (int site = 0; site < 5; ++site)
    sites.push_back(std::async(std::launch::async, [&, site] {
      const auto kill_at = [](int64_t last) {
        return [last](int64_t step) {
          if (step >= last) throw SiteKilled();
          return false;
        };
      };
      const auto arrive = [&] { started.arrive_and_wait(); };
      EXPECT_EQ(error_of(start_site(config, site, hub, {.started = arrive, .before = kill_at(4)})),
                "killed");
      int64_t steps = 0;
      const auto kill_later = [&](int64_t) {
        if (++steps > (site % 2 == 0 ? 1 : 4)) throw SiteKilled();
        return false;
      };
      EXPECT_EQ(error_of(restart_site(config, site, hub, {.before = kill_later})), "killed");
      return restart_site(config, site, hub, {.started = [&] { returned.count_down(); }}).get();
    }));
  for (int site = 5; site < 8; ++site)
    sites.push_back(start_site(config, site, hub,
                               {.started = [&] { started.arrive_and_wait(); },
                                .before =
                                    [&](int64_t step) {
                                      if (step == 8) returned.wait();
                                      return false;
                                    }}));
  ends_of(sites);
  EXPECT_TRUE(hub.has_ended());
  expect_short_rounds(hub, kShortTimeout);
}

}  // namespace
}  // namespace trireme::test::test_site_absence
