// Sites that exchange their updates through a hub, against sites of one job.
#include <gtest/gtest.h>

#include "parallel/outer/outer_algorithms.h"
#include "parallel/outer/peer_exchange.h"
#include "parallel/outer/sites.h"
#include "tests/parallel/outer/remote/site_run.h"

namespace trireme::test::test_site_hub {
namespace {

using Before = std::function<bool(int64_t step)>;  // SiteOptions::before

// Weights of each site at the end of a run of one job. before: of site 1.
std::vector<std::vector<double>> weights_of_one_job(const OuterConfig& config,
                                                    const Before& before = {}) {
  std::vector<std::vector<double>> weights(static_cast<size_t>(config.sites));
  run_threads(config.sites, [&](Communicator& world) {
    const Sites sites(world, config.sites);
    const Groups groups(sites.ranks(), {});
    Ctx ctx(1, "test");
    ParameterStore store(two_layers(), DType::kF64);
    store.allocate(ctx, true);
    OuterState state(config, store, groups.layout, sites.position(), kSiteLayers, false, kSiteSeed);
    state.allocate(ctx);
    OuterSync sync(groups, std::make_unique<PeerExchange>(sites, store, state, ctx), store, state,
                   ctx);
    const ArenaPlan plan = sync.plan();
    ctx.arena.reserve(plan.capacity);
    weights[static_cast<size_t>(world.rank())] =
        train_site(sync, store, plan, world.rank(),
                   {.before = world.rank() == 1 ? before : Before()})
            .weights;
  });
  return weights;
}

void expect_same_as_one_job(const OuterConfig& config, const std::vector<int>& ranks) {
  HubThread hub(config);
  std::vector<std::future<SiteEnd>> sites;
  for (int site = 0; site < config.sites; ++site)
    sites.push_back(start_site(config, site, hub, {.ranks = ranks[static_cast<size_t>(site)]}));
  const auto expected = weights_of_one_job(config);
  for (size_t site = 0; site < sites.size(); ++site)
    EXPECT_EQ(sites[site].get().weights, expected[site]) << "site " << site;
  EXPECT_TRUE(hub.has_ended());
  EXPECT_FALSE(hub.rounds().empty());
  for (const HubRound& round : hub.rounds()) {
    EXPECT_EQ(std::ssize(round.arrived), config.sites);
    EXPECT_TRUE(round.absent.empty() && round.not_finite.empty());
    EXPECT_GT(round.update_norm, 0);
    EXPECT_GT(round.drift, 0);
    EXPECT_GT(round.received_bytes, 0);
    EXPECT_GT(round.sent_bytes, 0);
    EXPECT_GE(round.computing, 0);
    EXPECT_LE(round.computing, 1);
  }
}

TEST(SiteHub, SitesHaveTheNumbersOfOneJob) { expect_same_as_one_job(remote_config(3), {1, 1, 1}); }

TEST(SiteHub, NumbersDoNotDependOnTheRanksOfASite) {
  expect_same_as_one_job(remote_config(3), {1, 2, 4});
}

TEST(SiteHub, OverlappedRoundsToo) { expect_same_as_one_job(remote_config(2, 2, 2), {2, 1}); }

TEST(SiteHub, EveryAlgorithm) {
  for (const OuterAlgorithm& algorithm : outer_algorithms()) {
    OuterConfig config = remote_config(3, 2);
    config.algorithm = algorithm.name;
    config.lr = algorithm.lr;
    config.momentum = algorithm.momentum(config.sites);
    config.warmup_steps = 2;
    expect_same_as_one_job(config, {1, 2, 1});
  }
}

OuterConfig adasum_config(int sites, int64_t overlap) {
  OuterConfig config = remote_config(sites, 2, overlap);
  config.algorithm = "adasum";
  config.lr = 1;
  config.momentum = 0;
  config.nesterov = false;
  return config;
}

TEST(SiteHub, CombinesUpdates) {
  expect_same_as_one_job(adasum_config(4, 0), {1, 2, 1, 4});
  expect_same_as_one_job(adasum_config(3, 2), {1, 1, 1});
  OuterConfig config = adasum_config(5, 2);
  config.compression.enabled = false;
  expect_same_as_one_job(config, {1, 1, 1, 1, 1});
}

// The part of its residual that it sends does not count either.
TEST(SiteHub, CombinesNoUpdateThatIsLeftOut) {
  const OuterConfig config = adasum_config(3, 0);
  const Before breaks = [](int64_t step) { return step == 6; };
  HubThread hub(config);
  std::vector<std::future<SiteEnd>> sites;
  for (int site = 0; site < config.sites; ++site)
    sites.push_back(start_site(config, site, hub, {.before = site == 1 ? breaks : Before()}));
  const auto expected = weights_of_one_job(config, breaks);
  for (size_t site = 0; site < sites.size(); ++site)
    EXPECT_EQ(sites[site].get().weights, expected[site]) << "site " << site;
  EXPECT_NE(expected, weights_of_one_job(config));
  EXPECT_TRUE(hub.has_ended());
}

TEST(SiteHub, NoMomentum) {
  OuterConfig config = remote_config(2);
  config.momentum = 0;
  expect_same_as_one_job(config, {1, 2});
}

TEST(SiteHub, EveryCompressor) {
  for (const CompressionOptions& options :
       std::vector<CompressionOptions>{{.method = "top_k", .ratio = 0.1, .block = 16},
                                       {.method = "random_k", .ratio = 0.1, .block = 16},
                                       {.method = "powersgd", .rank = 2}}) {
    OuterConfig config = remote_config(3);
    config.compression.options = options;
    expect_same_as_one_job(config, {1, 1, 1});
  }
  OuterConfig config = remote_config(3);
  config.compression.enabled = false;
  expect_same_as_one_job(config, {1, 2, 1});
}

}  // namespace
}  // namespace trireme::test::test_site_hub
