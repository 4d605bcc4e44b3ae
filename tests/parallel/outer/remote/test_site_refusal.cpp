// Peers that the hub refuses, or that send what no site sends.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cmath>
#include <random>

#include "parallel/comm/transport/tcp_address.h"
#include "tests/parallel/outer/remote/raw_peer.h"

namespace trireme::test::test_site_refusal {
namespace {

using Sites = std::vector<int>;

Bytes random_bytes(std::mt19937& random, size_t bytes) {
  Bytes out(bytes);
  for (std::byte& byte : out) byte = static_cast<std::byte>(random());
  return out;
}

std::string why_refused(const HubThread& hub, int site, const std::string& join,
                        uint64_t step = 0) {
  RawPeer peer(hub, site);
  peer.join(join, step);
  return peer.await_refusal();
}

TEST(SiteRefusal, NamesTheReason) {
  const OuterConfig config = remote_config(3);
  HubThread hub(config, kShortTimeout);
  RawPeer first(hub, 1);
  start_from_zero(first, config);
  expect_contains(error_of(start_site(config, 0, hub, {.join = "another run"})),
                  concat("the rendezvous at 127.0.0.1:", hub.port(),
                         " refuses site 0: it differs from site 1: another run is not the "));
  expect_contains(
      error_of(start_site(config, 1, hub)),
      "refuses site 1: site 1 is in the run already; give each site its own outer.site");
  for (const int site : {3, -1, 1 << 30})
    EXPECT_EQ(why_refused(hub, site, "the run"),
              concat("outer.site is ", site, ", and outer.sites 3 of site 1; sites are 0 to 2"));
  EXPECT_EQ(why_refused(hub, 0, "the run", 13),
            "its weights are those of step 13, and the run has 12 steps");
  EXPECT_EQ(why_refused(hub, 0, "the run", UINT64_MAX), "site 0 is at step -1");
}

TEST(SiteRefusal, NamesTheSecret) {
  const OuterConfig config = remote_config(2);
  HubThread hub(config);
  expect_contains(error_of(start_site(config, 0, hub, {.secret = "another secret of sites"})),
                  "check that it runs there, with the secret of this site");
}

TEST(SiteRefusal, StoppedHubIsNamed) {
  const OuterConfig config = remote_config(2);
  auto hub = std::make_unique<HubThread>(config);
  const int port = hub->port();
  std::latch started(3);
  Gate stopped;
  std::vector<std::future<SiteEnd>> sites;
  for (int site = 0; site < 2; ++site)
    sites.push_back(start_site(config, site, *hub,
                               {.started = [&] { started.arrive_and_wait(); },
                                .before =
                                    [&, site](int64_t step) {
                                      if (site == 1 && step == 2) stopped.pass();
                                      return false;
                                    }}));
  started.arrive_and_wait();
  hub->stop();
  EXPECT_FALSE(hub->has_ended());
  hub.reset();
  stopped.open();
  for (auto& site : sites) {
    const std::string error = error_of(std::move(site));
    expect_contains(error, concat("rendezvous of the sites at 127.0.0.1:", port, " is lost"));
    expect_contains(error, "start it again, then this site with --resume auto");
  }
}

// Weights of two sites of four, while peers disturb them.
std::vector<double> weights_beside(const std::function<void(HubThread&)>& disturb) {
  const OuterConfig config = remote_config(4, 2);
  HubThread hub(config);
  Gate disturbed;
  std::vector<std::future<SiteEnd>> sites;
  for (int site = 0; site < 2; ++site)
    sites.push_back(start_site(config, site, hub, {.before = [&](int64_t step) {
                                 if (step == 8) disturbed.pass();
                                 return false;
                               }}));
  {
    RawPeer third(hub, 2), fourth(hub, 3);  // the run starts with four
    third.join();
    fourth.join();
    third.await(SiteMessage::kStart);
  }
  disturb(hub);
  disturbed.open();
  const std::vector<SiteEnd> ends = ends_of(sites);
  EXPECT_TRUE(hub.has_ended());
  for (const HubRound& round : hub.rounds()) {
    EXPECT_EQ(round.arrived, (Sites{0, 1}));
    EXPECT_EQ(round.not_finite, Sites{});
  }
  return ends.front().weights;
}

// Each kind of message with numbers and sizes that do not fit, of members and others.
void send_messages(HubThread& hub) {
  std::mt19937 random(1);
  std::vector<std::unique_ptr<RawPeer>> silent;
  for (uint32_t kind = kFirstMessageKind - 1; kind < kFirstMessageKind + 11; ++kind)
    for (const uint64_t number : {uint64_t{0}, uint64_t{1}, uint64_t{2}, UINT64_MAX})
      for (const size_t bytes : {0, 1, 48, 5000}) {
        auto peer = std::make_unique<RawPeer>(hub, 2 + static_cast<int>(random() % 2));
        if (random() % 4 > 0) peer->join();
        peer->send(static_cast<SiteMessage>(kind), number, random_bytes(random, bytes));
        if (random() % 4 == 0) silent.push_back(std::move(peer));
      }
}

void send_random_bytes(HubThread& hub) {
  std::mt19937 random(2);
  for (int i = 0; i < 50; ++i) {
    const Bytes noise = random_bytes(random, 1 + random() % 5000);
    const auto member = member_of(hub, 2);
    send(member->fd(), noise.data(), noise.size(), MSG_NOSIGNAL);
    std::string why;
    const Socket stranger = connect_to(find_tcp("127.0.0.1", hub.port(), why).front(),
                                       std::chrono::steady_clock::now() + std::chrono::minutes(1));
    send(stranger.fd(), noise.data(), noise.size(), MSG_NOSIGNAL);
  }
}

TEST(SiteRefusal, PeersDoNotDisturbARun) {
  const std::vector<double> quiet = weights_beside([](HubThread&) {});
  EXPECT_EQ(weights_beside(send_messages), quiet);
  EXPECT_EQ(weights_beside(send_random_bytes), quiet);
  EXPECT_EQ(weights_beside([](HubThread& hub) {  // idle ones, and one that is at the end of nothing
              std::vector<std::unique_ptr<RawPeer>> idle;
              for (int i = 0; i < 20; ++i) idle.push_back(std::make_unique<RawPeer>(hub, i % 4));
              RawPeer(hub, 3).send(SiteMessage::kLeave, 1);
            }),
            quiet);
}

// Codes that decode to NaN do not get into the weights.
TEST(SiteRefusal, UpdateThatIsNotFinite) {
  const OuterConfig config = remote_config(3);
  HubThread hub(config);
  std::vector<std::future<SiteEnd>> sites;
  for (int site = 0; site < 2; ++site) sites.push_back(start_site(config, site, hub));
  {
    RawPeer third(hub, 2);
    third.join();
    third.await(SiteMessage::kStart);
    third.send(SiteMessage::kUpdate, 0, update_message(config, 0, 3, 1, std::byte{0xff}));
    third.await(SiteMessage::kSum);
  }
  for (const SiteEnd& end : ends_of(sites)) {
    EXPECT_EQ(end.rounds.front().left_out, Sites{2});
    for (const double weight : end.weights) ASSERT_TRUE(std::isfinite(weight));
  }
  EXPECT_TRUE(hub.has_ended());
  EXPECT_EQ(hub.rounds().front().not_finite, Sites{2});
}

TEST(SiteRefusal, UpdateOfAnotherStep) {
  const OuterConfig config = remote_config(3);
  HubThread hub(config, kShortTimeout);
  RawPeer first(hub, 0);
  start_from_zero(first, config);
  const auto why = [&](int64_t step, double squares) {
    const auto peer = member_of(hub, 1);
    peer->send(SiteMessage::kUpdate, 0, update_message(config, 0, step, squares));
    return peer->await_refusal();
  };
  for (const int64_t step : {int64_t{2}, int64_t{6}, int64_t{12}, int64_t{15}, INT64_MAX})
    expect_contains(why(step, 1), "which does not fit");
  for (const double squares : {-1.0, 1e300, std::nan("")})
    expect_contains(why(3, squares), "which does not fit");
}

}  // namespace
}  // namespace trireme::test::test_site_refusal
