// Messages between two processes of a job arrive whole or not at all.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cstring>

#include "engine/core/error.h"
#include "parallel/comm/control/control_channel.h"
#include "parallel/comm/control/records.h"

namespace trireme::test_control_channel {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLong{120'000};

enum class Kind : uint32_t { kPlan = kFirstMessageKind, kBeat, kEnd };

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
std::vector<char> wire_of(Kind kind, uint64_t number, std::string_view payload) {
  Pair pair;
  pair.channel->send(kind, number, std::as_bytes(std::span(payload)));
  std::vector<char> bytes(32 + payload.size());
  EXPECT_EQ(recv(pair.raw, bytes.data(), bytes.size(), MSG_WAITALL),
            static_cast<ssize_t>(bytes.size()));
  return bytes;
}

TEST(ControlChannel, TakesMessagesHoweverTheyArrive) {
  const std::vector<char> one = wire_of(Kind::kPlan, 7, "a plan");
  const std::vector<char> other = wire_of(Kind::kEnd, 8, "");
  Pair pair;
  for (const char byte : one) {
    EXPECT_FALSE(pair.channel->poll().has_value());
    pair.write(&byte, 1);
  }
  std::optional<Message> message = pair.channel->receive(kLong);
  ASSERT_TRUE(message.has_value());
  EXPECT_TRUE(message->is(Kind::kPlan));
  EXPECT_EQ(message->number, 7u);
  EXPECT_EQ(std::memcmp(message->payload.data(), "a plan", 6), 0);
  std::vector<char> both = one;
  both.insert(both.end(), other.begin(), other.end());
  pair.write(both.data(), both.size());
  EXPECT_EQ(pair.channel->receive(kLong)->number, 7u);
  EXPECT_TRUE(pair.channel->receive(kLong)->is(Kind::kEnd));
  EXPECT_FALSE(pair.channel->receive(milliseconds(1)).has_value());
}

TEST(ControlChannel, RefusesAnyBitThatHasChanged) {
  const std::vector<char> good = wire_of(Kind::kPlan, 7, "a plan");
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
  const std::vector<char> good = wire_of(Kind::kPlan, 7, std::string(100, 'x'));
  Pair pair;
  pair.channel->accept_payloads(99);
  pair.write(good.data(), 32);
  EXPECT_THROW(pair.channel->receive(kLong), BadMessage);
}

TEST(ControlChannel, ReportsThatThePeerHasGone) {
  Pair pair;
  close(std::exchange(pair.raw, -1));
  EXPECT_THROW(pair.channel->receive(kLong), Error);
  EXPECT_THROW(
      {
        for (int i = 0; i < 3; ++i) pair.channel->send(Kind::kBeat, 0);
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
        for (int i = 0; i < 100; ++i) pair.channel->send(Kind::kPlan, 1, much);
      },
      Error);
  EXPECT_GT(std::chrono::steady_clock::now() - begin, milliseconds(1500));
}

}  // namespace
}  // namespace trireme::test_control_channel
