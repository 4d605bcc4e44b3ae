// Order in which a site applies the sums and the snapshots of its hub.
#include <gtest/gtest.h>

#include "tests/parallel/outer/remote/raw_peer.h"

namespace trireme::test::test_hub_order {
namespace {

// Rounds of fragment 1 begin after steps 1 and 4, that of fragment 0 after step 3; they end 2 steps
// later. After step 5 a site therefore waits for the round of step 3 while that of step 4 is open.
const OuterConfig kConfig = remote_config(2, 2, 2);
constexpr int kFirst = 0, kSecond = 1;  // fragments

// Hub that sends what a test wants.
class ScriptedHub {
 public:
  ScriptedHub() : model_(whole_model(kConfig, OuterState::kHub)) {
    const std::string& where = listener_.address().where;
    port_ = std::stoi(where.substr(where.rfind(':') + 1));
  }
  int port() const { return port_; }
  WholeModel& model() { return *model_; }

  void start() {
    while (channel_ == nullptr)
      if (auto connected = listener_.accept(std::chrono::seconds(1)))
        channel_ = std::move(connected->channel);
    prepare_site_channel(*channel_, kLongTimeout, kMaxHubBytes);
    await(SiteMessage::kJoin);
    channel_->send(SiteMessage::kStart, 0, Bytes());
  }
  Message await(SiteMessage kind) {
    Message message = *channel_->receive(ControlChannel::kForever);
    EXPECT_TRUE(message.is(kind)) << message.kind;
    return message;
  }
  void await_update(int fragment, int64_t step) {
    const Message message = await(SiteMessage::kUpdate);
    UpdateHeader header;
    std::memcpy(&header, message.payload.data(), sizeof header);
    EXPECT_EQ(message.number, static_cast<uint64_t>(fragment));
    EXPECT_EQ(header.step, step);
  }
  // A sum of one site's update of equal elements, which the model applies too.
  void send_sum(int fragment, int64_t step, double element) {
    const SumHeader header{step, kConfig.sites + 1};
    const double report[] = {0, OuterState::kAbsent, 0};
    Bytes message(sizeof header + sizeof report +
                  static_cast<size_t>(model_->code_bytes(fragment)));
    std::memcpy(message.data(), &header, sizeof header);
    std::memcpy(message.data() + sizeof header, report, sizeof report);
    const auto code = std::span(message).subspan(sizeof header + sizeof report);
    fill(&OuterState::Unit::update, fragment, element);
    model_->encode(fragment, step, code);
    model_->decode(fragment, step, code, false);
    model_->change_shared(fragment, step, 1);
    channel_->send(SiteMessage::kSum, static_cast<uint64_t>(fragment), message);
  }
  // All weights of the model, and of the site, become `element`.
  void send_replacement(int fragment, int64_t newest, double element) {
    const SnapshotHeader header{newest};
    Bytes message(sizeof header);
    std::memcpy(message.data(), &header, sizeof header);
    for (int f = 0; f < kConfig.fragments; ++f) {
      fill(&OuterState::Unit::shared, f, element);
      const size_t at = message.size();
      message.resize(at + static_cast<size_t>(model_->state_bytes(f)));
      const auto rest =
          model_->copy_out(f, &OuterState::Unit::shared, std::span(message).subspan(at));
      if (!rest.empty()) model_->copy_out(f, &OuterState::Unit::momentum, rest);
    }
    channel_->send(SiteMessage::kReplace, static_cast<uint64_t>(fragment), message);
  }

 private:
  void fill(Tensor OuterState::Unit::*array, int fragment, double element) {
    model_->for_each(fragment, [&](const OuterState::Unit& unit) {
      const Tensor& tensor = unit.*array;
      std::fill_n(tensor.as<double>(), tensor.numel(), element);
    });
  }
  std::unique_ptr<WholeModel> model_;
  ControlListener listener_ = ControlListener::on_address("127.0.0.1", 0, kSiteSecret, kSitePeers);
  int port_ = 0;
  std::unique_ptr<ControlChannel> channel_;
};

// A site whose rounds of steps 3 and 4 are open.
std::future<SiteEnd> site_with_two_rounds(ScriptedHub& hub, int ranks, int64_t last_step,
                                          int64_t shown_after) {
  std::future<SiteEnd> site = std::async(std::launch::async, [=, port = hub.port()] {
    return run_site(kConfig, 0, port,
                    {.ranks = ranks, .last_step = last_step, .shown_after = shown_after});
  });
  hub.start();
  hub.await_update(kSecond, 1);
  hub.send_sum(kSecond, 1, 0.25);
  hub.await_update(kFirst, 3);
  hub.await_update(kSecond, 4);
  return site;
}

constexpr double kCode = 1e-6;  // relative error of the code of equal elements, a float32 scale

// Weights of the parameters of each layer, which are those of a fragment.
void expect_layers(const std::vector<double>& weights, double first, double second) {
  ASSERT_EQ(weights.size(), size_t{2 * (kSiteRows + 1) * kSiteColumns});
  for (size_t i = 0; i < weights.size(); ++i)
    ASSERT_NEAR(weights[i], i < weights.size() / 2 ? first : second, kCode) << i;
}

double weight_of(ScriptedHub& hub, int fragment) {
  double weight = 0;
  hub.model().for_each(
      fragment, [&](const OuterState::Unit& unit) { weight = to_doubles(unit.shared).front(); });
  return weight;
}

TEST(HubOrder, SumAfterASnapshotChangesIt) {
  for (const int ranks : {1, 2}) {
    ScriptedHub hub;
    auto site = site_with_two_rounds(hub, ranks, 5, 0);
    hub.send_replacement(kSecond, 4, 2);
    hub.send_sum(kFirst, 3, 0.5);
    const SiteEnd end = site.get();
    EXPECT_LT(weight_of(hub, kFirst), 2 - 100 * kCode);
    expect_layers(end.weights, weight_of(hub, kFirst), 2);
    EXPECT_TRUE(end.rounds.back().replaced);
    EXPECT_EQ(end.rounds.back().fragments, 2);
  }
}

TEST(HubOrder, SnapshotAfterASumIncludesIt) {
  ScriptedHub hub;
  auto site = site_with_two_rounds(hub, 1, 6, 0);
  hub.send_sum(kFirst, 3, 0.5);
  hub.send_replacement(kSecond, 6, 2);
  const SiteEnd end = site.get();  // it sends no update of step 6, which the hub has passed
  hub.await(SiteMessage::kLeave);
  expect_layers(end.weights, 2, 2);
}

TEST(HubOrder, EvaluationOfASnapshotBeforeASum) {
  ScriptedHub hub;
  auto site = site_with_two_rounds(hub, 2, 5, 4);
  hub.send_replacement(kSecond, 4, 2);
  hub.send_sum(kFirst, 3, 0.5);
  const SiteEnd end = site.get();
  expect_layers(end.shown, 2, 2);
  expect_layers(end.weights, weight_of(hub, kFirst), 2);
}

TEST(HubOrder, EvaluationOfASnapshotAfterASum) {
  ScriptedHub hub;
  auto site = site_with_two_rounds(hub, 2, 5, 4);
  hub.send_sum(kFirst, 3, 0.5);
  hub.send_replacement(kSecond, 4, 2);
  const SiteEnd end = site.get();
  expect_layers(end.shown, 2, 2);
  expect_layers(end.weights, 2, 2);
}

// A late site gets the weights once, however many of its fragments are late.
TEST(HubOrder, OneSnapshotForSeveralFragments) {
  OuterConfig config = remote_config(2, 2);
  config.warmup_steps = 1;
  HubThread hub(config, kShortTimeout);
  RawPeer first(hub, 0);
  start_from_zero(first, config);
  const auto late = member_of(hub, 1);
  for (int f = 0; f < 2; ++f) first.send(SiteMessage::kUpdate, f, update_message(config, f, 1));
  for (int f = 0; f < 2; ++f)
    hub.await_round([=](const HubRound& round) { return round.fragment == f; });
  for (int f = 0; f < 2; ++f) late->send(SiteMessage::kUpdate, f, update_message(config, f, 1));
  const Message replaced = late->receive(), same = late->receive();
  EXPECT_TRUE(replaced.is(SiteMessage::kReplace) && same.is(SiteMessage::kReplace));
  EXPECT_GT(replaced.payload.size(), 1000u);
  EXPECT_EQ(same.payload.size(), sizeof(SnapshotHeader));
  EXPECT_EQ(same.number, 1u);
}

// Update whose elements are all `element`.
Bytes equal_update(const OuterConfig& config, int fragment, int64_t step, double element) {
  const auto model = whole_model(config, OuterState::kSender);
  model->for_each(fragment, [&](const OuterState::Unit& unit) {
    std::fill_n(unit.update.as<double>(), unit.update.numel(), element);
  });
  Bytes bytes = update_message(config, fragment, step, 1);
  model->encode(fragment, step, std::span(bytes).subspan(sizeof(UpdateHeader)));
  return bytes;
}

bool is_last(const HubRound& round, int fragment) {
  return round.fragment == fragment && round.step == kSiteSteps;
}

// A site that joins while the last round of one fragment has closed repeats the last step, and
// takes part in that of the other.
TEST(HubOrder, JoinBetweenTheLastRoundsOfTwoFragments) {
  const OuterConfig config = remote_config(2, 2);
  HubThread hub(config, kShortTimeout);
  RawPeer first(hub, 0);
  start_from_zero(first, config, kSiteSteps - 1);
  first.send(SiteMessage::kUpdate, 0, equal_update(config, 0, kSiteSteps, 1));
  hub.await_round([](const HubRound& round) { return is_last(round, 0); });
  Gate joined;
  auto joining = start_site(config, 1, hub, {.started = [&] { joined.open(); }});
  joined.pass();
  first.send(SiteMessage::kUpdate, 1, equal_update(config, 1, kSiteSteps, 1));
  hub.await_round([](const HubRound& round) { return is_last(round, 1); });
  const SiteEnd end = joining.get();
  EXPECT_EQ(end.started_at, kSiteSteps - 1);
  EXPECT_LT(end.weights.front(), -0.1);
  EXPECT_LT(end.weights.back(), -0.1);
}

// The update of a site that is late for one fragment counts in the open round of the other.
TEST(HubOrder, LateBetweenTheLastRoundsOfTwoFragments) {
  const OuterConfig config = remote_config(2, 2);
  HubThread hub(config, kShortTimeout);
  RawPeer first(hub, 0);
  start_from_zero(first, config, kSiteSteps - 1);
  const auto late = member_of(hub, 1);
  first.send(SiteMessage::kUpdate, 0, update_message(config, 0, kSiteSteps));
  hub.await_round([](const HubRound& round) { return is_last(round, 0); });
  for (int f = 0; f < 2; ++f)
    late->send(SiteMessage::kUpdate, static_cast<uint64_t>(f),
               update_message(config, f, kSiteSteps));
  const Message replaced = late->await(SiteMessage::kReplace);
  SnapshotHeader header;
  std::memcpy(&header, replaced.payload.data(), sizeof header);
  EXPECT_EQ(header.step, kSiteSteps - 1);
  first.send(SiteMessage::kUpdate, 1, update_message(config, 1, kSiteSteps));
  const HubRound last = hub.await_round([](const HubRound& round) { return is_last(round, 1); });
  EXPECT_EQ(std::ranges::count(last.arrived, 1), 1);
  EXPECT_EQ(late->await(SiteMessage::kSum).number, 1u);
}

// A site that is asked to stop takes the sum that has arrived, and does not wait for the next one.
TEST(HubOrder, StopTakesTheSumsThatHaveArrived) {
  ScriptedHub hub;
  std::atomic<bool> stops = false;
  const auto before = [&](int64_t step) {
    stops = step >= 6;  // the sum of step 4 came before that of step 3, which ended after step 5
    return false;
  };
  std::future<ExitCode> site = std::async(std::launch::async, [&, port = hub.port()] {
    try {
      run_site(kConfig, 0, port, {.stops = [&] { return stops.load(); }, .before = before});
    } catch (const WaitEnded& e) {
      return e.code();
    }
    return ExitCode::kDone;
  });
  hub.start();
  hub.await_update(kSecond, 1);
  hub.send_sum(kSecond, 1, 0.25);
  hub.await_update(kFirst, 3);
  hub.await_update(kSecond, 4);
  hub.send_sum(kSecond, 4, 0.5);
  hub.send_sum(kFirst, 3, 0.5);
  hub.await_update(kFirst, 6);
  hub.await_update(kSecond, 7);
  EXPECT_EQ(site.get(), ExitCode::kStoppedSaved);
}

}  // namespace
}  // namespace trireme::test::test_hub_order
