// Messages between two processes of a job arrive whole or not at all; foreign connections are
// ignored.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <thread>

#include "serving/distributed/control_rendezvous.h"
#include "serving/distributed/leading_executor.h"
#include "serving/distributed/rank_loop.h"
#include "tests/serving/distributed/plans.h"

namespace trireme::test_control_channel {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLong{120'000};

struct Pair {
  Pair() {
    std::array<int, 2> ends{};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
    raw = ends[0];
    channel = std::make_unique<ControlChannel>(Socket(ends[1]), "the other");
  }
  ~Pair() {
    if (raw >= 0) close(raw);
  }
  void write(const void* data, size_t bytes) const {
    EXPECT_EQ(::send(raw, data, bytes, 0), static_cast<ssize_t>(bytes));
  }
  int raw = -1;
  std::unique_ptr<ControlChannel> channel;
};

// Bytes of a message on the wire.
std::vector<char> wire_of(MessageKind kind, uint64_t number, std::string_view payload) {
  Pair pair;
  pair.channel->send(kind, number, std::as_bytes(std::span(payload)));
  std::vector<char> bytes(32 + payload.size());
  EXPECT_EQ(recv(pair.raw, bytes.data(), bytes.size(), MSG_WAITALL),
            static_cast<ssize_t>(bytes.size()));
  return bytes;
}

TEST(ControlChannel, TakesMessagesHoweverTheyArrive) {
  const std::vector<char> one = wire_of(MessageKind::kPlan, 7, "a plan");
  const std::vector<char> other = wire_of(MessageKind::kEnd, 8, "");
  Pair pair;
  for (const char byte : one) {
    EXPECT_FALSE(pair.channel->poll().has_value());
    pair.write(&byte, 1);
  }
  std::optional<Message> message = pair.channel->receive(kLong);
  ASSERT_TRUE(message.has_value());
  EXPECT_EQ(message->kind, MessageKind::kPlan);
  EXPECT_EQ(message->number, 7u);
  EXPECT_EQ(std::memcmp(message->payload.data(), "a plan", 6), 0);
  std::vector<char> both = one;
  both.insert(both.end(), other.begin(), other.end());
  pair.write(both.data(), both.size());
  EXPECT_EQ(pair.channel->receive(kLong)->number, 7u);
  EXPECT_EQ(pair.channel->receive(kLong)->kind, MessageKind::kEnd);
  EXPECT_FALSE(pair.channel->receive(milliseconds(1)).has_value());
}

TEST(ControlChannel, RefusesAnyBitThatHasChanged) {
  const std::vector<char> good = wire_of(MessageKind::kPlan, 7, "a plan");
  for (size_t bit = 0; bit < good.size() * 8; ++bit) {
    std::vector<char> bad = good;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << bit % 8));
    Pair pair;
    pair.write(bad.data(), bad.size());
    shutdown(pair.raw, SHUT_WR);
    // A larger length leaves a message that never becomes complete.
    EXPECT_THROW(pair.channel->receive(kLong), Error) << bit;
  }
}

TEST(ControlChannel, RefusesMoreThanItAcceptsBeforeItComes) {
  const std::vector<char> good = wire_of(MessageKind::kPlan, 7, std::string(100, 'x'));
  Pair pair;
  pair.channel->accept_payloads(99);
  pair.write(good.data(), 32);
  EXPECT_THROW(pair.channel->receive(kLong), BadMessage);
}

TEST(ControlChannel, SaysThatThePeerHasGone) {
  Pair pair;
  close(std::exchange(pair.raw, -1));
  EXPECT_THROW(pair.channel->receive(kLong), Error);
  EXPECT_THROW(
      {
        for (int i = 0; i < 3; ++i) pair.channel->send(MessageKind::kBeat, 0);
      },
      Error);
}

// A peer that does not read blocks its sender only for a limited time.
TEST(ControlChannel, DoesNotWaitForAPeerThatReadsNothing) {
  Pair pair;
  const std::vector<std::byte> much(1 << 20);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_THROW(
      {
        for (int i = 0; i < 100; ++i) pair.channel->send(MessageKind::kPlan, 1, much);
      },
      Error);
  EXPECT_GT(std::chrono::steady_clock::now() - begin, milliseconds(1500));
}

std::unique_ptr<ControlListener::Guest> accepted(ControlListener& listener) {
  for (int i = 0; i < 1200; ++i)
    if (auto guest = listener.accept(milliseconds(100))) return guest;
  return {};
}

void expect_turned_away(ControlListener& listener, const ControlAddress& address) {
  std::atomic<bool> turned_away = false;
  std::thread stranger([&] {
    EXPECT_THROW(connect_control_channel(address, 0, kLong), Error);
    turned_away = true;
  });
  while (!turned_away) EXPECT_EQ(listener.accept(milliseconds(20)), nullptr);
  stranger.join();
}

TEST(ControlRendezvous, BringsRanksTogetherOnAMachineAndOverTcp) {
  for (const bool tcp : {false, true}) {
    ControlListener listener =
        tcp ? ControlListener::on_address("127.0.0.1") : ControlListener::on_this_machine();
    const ControlAddress address = ControlAddress::parse(listener.address().line());
    std::unique_ptr<ControlChannel> rank;
    std::thread connecting([&] { rank = connect_control_channel(address, 3, kLong); });
    const auto guest = accepted(listener);
    connecting.join();
    ASSERT_NE(guest, nullptr);
    EXPECT_EQ(guest->rank, 3);
    EXPECT_EQ(guest->process, getpid());
    guest->channel->send(MessageKind::kPlan, 9);
    EXPECT_EQ(rank->receive(kLong)->number, 9u);
    rank->send(MessageKind::kBeat, 4);
    EXPECT_EQ(guest->channel->receive(kLong)->number, 4u);
  }
}

TEST(ControlRendezvous, TurnsStrangersAway) {
  ControlListener listener = ControlListener::on_address("127.0.0.1");
  ControlAddress wrong = listener.address();
  wrong.secret.back() = wrong.secret.back() == '0' ? '1' : '0';
  expect_turned_away(listener, wrong);
  // A process with the secret can still connect.
  std::thread rank([&] { connect_control_channel(listener.address(), 0, kLong); });
  EXPECT_NE(accepted(listener), nullptr);
  rank.join();
  // Nor does a rank accept a process that only has the address.
  ControlListener other = ControlListener::on_address("127.0.0.1");
  ControlAddress mixed = other.address();
  mixed.secret = listener.address().secret;
  expect_turned_away(other, mixed);
}

// Connections that send nothing, or an incomplete greeting.
struct SilentStrangers {
  SilentStrangers(const ControlListener& listener, int count) {
    const std::string& where = listener.address().where;
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(std::stoi(where.substr(where.rfind(':') + 1))));
    for (int i = 0; i < count; ++i) {
      sockets.emplace_back(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      EXPECT_EQ(connect(sockets.back().fd(), reinterpret_cast<sockaddr*>(&address), sizeof address),
                0);
      const std::string_view begun = i % 2 == 0 ? "" : "SIRT";
      EXPECT_EQ(::send(sockets.back().fd(), begun.data(), begun.size(), MSG_NOSIGNAL),
                std::ssize(begun));
    }
  }
  // Number of connections that the listener has not closed.
  int left() const {
    int count = 0;
    for (const Socket& one : sockets) {
      std::array<char, 4096> bytes{};
      ssize_t got = 1;
      while (got > 0) got = recv(one.fd(), bytes.data(), bytes.size(), MSG_DONTWAIT);
      count += got < 0 && errno == EAGAIN ? 1 : 0;
    }
    return count;
  }
  std::vector<Socket> sockets;
};

// One after the other, 30 of them would take a minute, and a rank would time out after two seconds.
TEST(ControlRendezvous, LetsStrangersHoldUpNobody) {
  ControlListener listener = ControlListener::on_address("127.0.0.1");
  const SilentStrangers strangers(listener, 30);
  std::thread rank([&] { EXPECT_NO_THROW(connect_control_channel(listener.address(), 2, kLong)); });
  const auto guest = accepted(listener);
  rank.join();
  ASSERT_NE(guest, nullptr);
  EXPECT_EQ(guest->rank, 2);
  EXPECT_EQ(listener.accept(ControlListener::kHandshake + milliseconds(500)), nullptr);
  EXPECT_EQ(strangers.left(), 0);
}

TEST(ControlRendezvous, LetsManyStrangersKeepOutNobody) {
  ControlListener listener = ControlListener::on_address("127.0.0.1");
  constexpr int kMax = static_cast<int>(ControlListener::kMaxStrangers);
  const SilentStrangers strangers(listener, kMax + 60);
  std::thread rank([&] { EXPECT_NO_THROW(connect_control_channel(listener.address(), 2, kLong)); });
  EXPECT_NE(accepted(listener), nullptr);
  rank.join();
  EXPECT_LT(strangers.left(), kMax);
}

TEST(ControlRendezvous, ReadsNoOtherAddresses) {
  const std::string secret(64, 'a');
  EXPECT_NO_THROW(ControlAddress::parse("unix:x " + secret));
  const std::vector<std::string> bad = {"", "unix:x", "unix:x a", "file:x " + secret,
                                        "tcp:1 " + secret};
  for (const std::string& line : bad) EXPECT_THROW(ControlAddress::parse(line), InputError) << line;
}

// A leader and two followers run the same sequences, and all end.
TEST(RankLoop, FollowsALeader) {
  const PlanBounds& b = test::kPlanBounds;
  const auto texts = [&] {
    return std::make_unique<test::RecordedTexts>(b.blocks, b.block_tokens,
                                                 static_cast<int32_t>(b.ids));
  };
  std::vector<std::unique_ptr<ControlChannel>> leading, following;
  for (int i = 0; i < 2; ++i) {
    std::array<int, 2> ends{};
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
    leading.push_back(std::make_unique<ControlChannel>(Socket(ends[0]), "a follower"));
    following.push_back(std::make_unique<ControlChannel>(Socket(ends[1]), "the leader"));
  }
  std::array<int64_t, 2> computed{};
  std::vector<std::thread> ranks;
  for (size_t i = 0; i < 2; ++i)
    ranks.emplace_back([&, i] {
      const auto own = texts();
      follow_plans(*following[i], *own, {.bounds = b});
      computed[i] = own->tokens;
    });
  auto own = texts();
  const test::RecordedTexts& leader = *own;
  Followers followers(std::move(leading));
  auto executor = std::make_unique<LeadingExecutor>(std::move(own), followers);
  test::for_each_plan(20, [&](const SchedulerOutput& plan, const StepOutput& outcome) {
    EXPECT_EQ(encode_output(executor->execute(plan)), encode_output(outcome));
    EXPECT_GT(executor->tell_seconds(), 0);
  });
  const int64_t tokens = leader.tokens;
  executor.reset();
  for (std::thread& rank : ranks) rank.join();
  EXPECT_GT(tokens, 0);
  EXPECT_EQ(computed[0], tokens);
  EXPECT_EQ(computed[1], tokens);
}

TEST(RankLoop, ComputesNothingThatIsOutOfBounds) {
  std::array<int, 2> ends{};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
  ControlChannel leader(Socket(ends[0]), "a follower"), follower(Socket(ends[1]), "the leader");
  SchedulerOutput plan;
  plan.number = 1;
  plan.sequences.push_back({.slot = 0, .tokens = 1, .kept_blocks = 1});
  plan.tokens = {1};
  leader.send(MessageKind::kPlan, 1, encode_plan(plan));
  test::RecordedTexts texts(24, 4, 50);
  EXPECT_THROW(follow_plans(follower, texts, {.bounds = test::kPlanBounds}), BadMessage);
  EXPECT_EQ(texts.tokens, 0);
}

TEST(RankLoop, ShowsThatItLives) {
  std::array<int, 2> ends{};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
  ControlChannel leader(Socket(ends[0]), "a follower"), follower(Socket(ends[1]), "the leader");
  Heartbeat heartbeat(follower);
  heartbeat.computed(5);
  for (int i = 0; i < 3; ++i) {
    const std::optional<Message> beat = leader.receive(kLong);
    ASSERT_TRUE(beat.has_value());
    EXPECT_EQ(beat->kind, MessageKind::kBeat);
    EXPECT_EQ(beat->number, 5u);
  }
}

}  // namespace
}  // namespace trireme::test_control_channel
