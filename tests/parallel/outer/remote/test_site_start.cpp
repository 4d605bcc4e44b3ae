// Weights that a run of sites, or a site that joins it, starts from.
#include <gtest/gtest.h>

#include "tests/parallel/outer/remote/raw_peer.h"

namespace trireme::test::test_site_start {
namespace {

// Weights at the end of a run whose sites start with these steps and additions.
std::vector<SiteEnd> run_of(const std::vector<SiteOptions>& options) {
  const OuterConfig config = remote_config(static_cast<int>(options.size()), 2);
  HubThread hub(config);
  std::vector<std::future<SiteEnd>> sites;
  for (size_t site = 0; site < options.size(); ++site)
    sites.push_back(start_site(config, static_cast<int>(site), hub, options[site]));
  std::vector<SiteEnd> ends = ends_of(sites);
  EXPECT_TRUE(hub.has_ended());
  return ends;
}

TEST(SiteStart, FromTheMostAdvancedSite) {
  const std::vector<SiteEnd> ends =
      run_of({{.step = 2, .added = 3}, {.step = 5, .added = 0.5}, {.step = 5, .added = 0.25}});
  for (const SiteEnd& end : ends) EXPECT_EQ(end.started_at, 5);
  const SiteOptions same{.step = 5, .added = 0.5};
  EXPECT_EQ(ends[0].weights, run_of({same, same, same})[0].weights);
}

TEST(SiteStart, OfSeveralRanksPerSite) {
  const std::vector<SiteEnd> ends = run_of(
      {{.ranks = 2, .step = 2, .added = 3}, {.ranks = 3, .step = 5, .added = 0.5}, {.added = 1}});
  const SiteOptions same{.step = 5, .added = 0.5};
  EXPECT_EQ(ends[0].weights, run_of({same, same, same})[0].weights);
}

// A site that joins a running run trains from its weights, and its first round counts.
TEST(SiteStart, NewSiteGetsTheCurrentWeights) {
  const OuterConfig config = remote_config(3);
  HubThread hub(config);
  Gate joined;
  std::vector<std::future<SiteEnd>> sites;
  for (int site = 0; site < 2; ++site)
    sites.push_back(start_site(config, site, hub, {.before = [&](int64_t step) {
                                 if (step == 5) joined.pass();
                                 return false;
                               }}));
  {
    RawPeer third(hub, 2);
    third.join();
    third.await(SiteMessage::kStart);
  }
  EXPECT_EQ(hub.await_step(3).absent, std::vector<int>{2});
  sites.push_back(start_site(config, 2, hub, {.added = 7, .started = [&] { joined.open(); }}));
  const std::vector<SiteEnd> ends = ends_of(sites);
  EXPECT_EQ(ends[2].started_at, 3);
  EXPECT_EQ(ends[2].steps.front(), 4);
  EXPECT_EQ(hub.await_step(6).arrived, (std::vector<int>{0, 1, 2}));
  EXPECT_TRUE(hub.has_ended());
}

// The third site joins after the round of step 3 of fragment 0, and before that of step 1 of
// fragment 1 ends: it lacks a sum, so its next round of this fragment gives it the weights.
TEST(SiteStart, InTheMiddleOfARound) {
  const OuterConfig config = remote_config(3, 2);
  HubThread hub(config, kLongTimeout);
  RawPeer first(hub, 0), second(hub, 1);
  second.join();
  {
    RawPeer third(hub, 2);
    third.join();
    start_from_zero(first, config);
    third.await(SiteMessage::kStart);
  }
  second.await(SiteMessage::kStart);
  const auto update = [&](RawPeer& peer, int fragment, int64_t step) {
    peer.send(SiteMessage::kUpdate, static_cast<uint64_t>(fragment),
              update_message(config, fragment, step));
  };
  update(first, 1, 1);
  update(first, 0, 3);
  update(second, 0, 3);
  first.await(SiteMessage::kSum);
  RawPeer third(hub, 2);
  third.join();
  EXPECT_EQ(third.await(SiteMessage::kStart).number, 3u);
  update(second, 1, 1);
  EXPECT_EQ(first.await(SiteMessage::kSum).number, 1u);
  for (RawPeer* const peer : {&first, &second, &third}) update(*peer, 1, 4);
  EXPECT_EQ(third.await(SiteMessage::kReplace).number, 1u);
  EXPECT_EQ(first.await(SiteMessage::kSum).number, 1u);
  EXPECT_EQ(hub.await_step(4).arrived, (std::vector<int>{0, 1, 2}));
  for (RawPeer* const peer : {&first, &second, &third}) update(*peer, 0, 6);
  EXPECT_EQ(third.await(SiteMessage::kSum).number, 0u);
}

// A site with the farthest weights that do not arrive: those of the next one are used.
void expect_start_without_donor(const std::function<void(RawPeer&)>& refuse) {
  const OuterConfig config = remote_config(3, 2);
  HubThread hub(config, kShortTimeout);
  std::optional<RawPeer> farthest(std::in_place, hub, 2);
  farthest->join("the run", 6);
  farthest->await(SiteMessage::kDonate);
  std::latch started(2);
  std::vector<std::future<SiteEnd>> sites;
  for (int site = 0; site < 2; ++site)
    sites.push_back(start_site(config, site, hub, {.started = [&] { started.arrive_and_wait(); }}));
  refuse(*farthest);
  farthest.reset();
  for (const SiteEnd& end : ends_of(sites)) EXPECT_EQ(end.started_at, 0);
  EXPECT_TRUE(hub.has_ended());
}

TEST(SiteStart, WithoutASiteThatSendsNoWeights) {
  expect_start_without_donor([](RawPeer& peer) {
    EXPECT_EQ(peer.await_refusal(), "it has not sent its weights in time");
  });
}

TEST(SiteStart, WithoutASiteThatSendsOtherWeights) {
  expect_start_without_donor([](RawPeer& peer) {
    peer.send(SiteMessage::kState, 0, Bytes(8));
    EXPECT_EQ(peer.await_refusal(), "site 2 sent 8 bytes of weights that do not fit");
  });
}

TEST(SiteStart, WithoutASiteThatLeaves) {
  expect_start_without_donor([](RawPeer& peer) { peer.send(SiteMessage::kLeave, 0); });
}

TEST(SiteStart, WithoutASiteThatIsLost) {
  expect_start_without_donor([](RawPeer&) {});
}

// The first site of all has another configuration: once it has gone, it decides nothing.
TEST(SiteStart, OfARunThatAnotherHasOpened) {
  const OuterConfig config = remote_config(2);
  HubThread hub(config);
  RawPeer first(hub, 0), second(hub, 1);
  second.join("no run");
  EXPECT_EQ(second.await_refusal(), "this is no run");
  first.join("another run");
  first.send(SiteMessage::kSum, 0);
  first.await_refusal();
  std::vector<std::future<SiteEnd>> sites;
  for (int site = 0; site < 2; ++site) sites.push_back(start_site(config, site, hub));
  ends_of(sites);
  EXPECT_TRUE(hub.has_ended());
}

}  // namespace
}  // namespace trireme::test::test_site_start
