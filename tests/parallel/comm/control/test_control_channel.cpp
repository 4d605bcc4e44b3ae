// Messages between two processes of a job arrive whole or not at all.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstring>
#include <thread>

#include "engine/core/error.h"
#include "parallel/comm/control/control_channel.h"
#include "parallel/comm/control/records.h"
#include "parallel/comm/transport/tcp_address.h"

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

// Both ends of a connection.
struct Ends {
  explicit Ends(bool tcp = false) {
    std::array<int, 2> sockets{-1, -1};
    if (tcp) {
      const Socket listening = listen_at(resolve_tcp("test", "127.0.0.1", 0).front());
      Socket connected = connect_to(local_address(listening));
      to = std::make_unique<ControlChannel>(Socket(accept(listening.fd(), nullptr, nullptr)), "A");
      from = std::make_unique<ControlChannel>(std::move(connected), "B");
    } else {
      EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets.data()), 0);
      to = std::make_unique<ControlChannel>(Socket(sockets[0]), "A");
      from = std::make_unique<ControlChannel>(Socket(sockets[1]), "B");
    }
  }
  std::unique_ptr<ControlChannel> to, from;
};

std::vector<std::byte> numbered_bytes(size_t count) {
  std::vector<std::byte> bytes(count);
  for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(i * 2654435761u >> 13);
  return bytes;
}

std::string error_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kLostRank);
    return error.what();
  }
  return "no error";
}

TEST(ControlChannel, ReceivesLargePayloadsBetweenShortOnes) {
  for (const bool tcp : {false, true}) {
    Ends ends(tcp);
    ends.from->accept_payloads(64 << 20);
    const std::vector<size_t> sizes = {
        0, 1, (64 << 10) - 33, (64 << 10) - 32, 64 << 10, 5, 33333333, 0, 7, 1 << 20, 1 << 17, 3};
    std::thread sending([&] {
      for (size_t i = 0; i < sizes.size(); ++i)
        ends.to->send(Kind::kPlan, i, numbered_bytes(sizes[i]));
    });
    for (size_t i = 0; i < sizes.size(); ++i) {
      const std::optional<Message> message = ends.from->receive(kLong);
      ASSERT_TRUE(message.has_value());
      EXPECT_EQ(message->number, i);
      EXPECT_TRUE(message->payload == numbered_bytes(sizes[i])) << sizes[i];
    }
    sending.join();
    EXPECT_FALSE(ends.from->poll().has_value());
  }
}

TEST(ControlChannel, WaitsForAPausedPeerUntilItsLimit) {
  const std::vector<std::byte> much(8 << 20);
  Ends impatient;
  impatient.to->stall_after(milliseconds(50));
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(error_of([&] { impatient.to->send(Kind::kPlan, 1, much); }), "A has stopped reading");
  EXPECT_GE(std::chrono::steady_clock::now() - begin, milliseconds(50));

  Ends patient;
  patient.to->stall_after(ControlChannel::kForever);
  patient.from->accept_payloads(8 << 20);
  std::thread sending([&] { EXPECT_NO_THROW(patient.to->send(Kind::kPlan, 1, much)); });
  std::this_thread::sleep_for(ControlChannel::kMaxStall + milliseconds(300));
  EXPECT_EQ(patient.from->receive(kLong)->payload.size(), much.size());
  sending.join();
}

// A signal ends the wait for a slow peer in the kernel, but not that of the sender.
TEST(ControlChannel, ContinuesAfterASignal) {
  struct sigaction handle {};
  handle.sa_handler = [](int) {};
  struct sigaction before {};
  sigaction(SIGUSR2, &handle, &before);
  const std::vector<std::byte> much(8 << 20);
  Ends ends;
  ends.to->stall_after(kLong);
  ends.from->accept_payloads(8 << 20);
  std::thread sending([&] { EXPECT_NO_THROW(ends.to->send(Kind::kPlan, 1, much)); });
  for (int i = 0; i < 10; ++i) {
    std::this_thread::sleep_for(milliseconds(20));
    pthread_kill(sending.native_handle(), SIGUSR2);
  }
  EXPECT_EQ(ends.from->receive(kLong)->payload.size(), much.size());
  sending.join();
  sigaction(SIGUSR2, &before, nullptr);
}

int tcp_option(const ControlChannel& channel, int level, int option) {
  int value = -1;
  socklen_t length = sizeof value;
  EXPECT_EQ(getsockopt(channel.fd(), level, option, &value, &length), 0);
  return value;
}

TEST(ControlChannel, ProbesASilentPeerWithinTheLimit) {
  for (const int limit : {2, 3, 4, 5, 30, 61}) {
    const Ends ends(true);
    EXPECT_EQ(tcp_option(*ends.to, SOL_SOCKET, SO_KEEPALIVE), 0);
    ends.to->keep_alive(std::chrono::seconds(limit));
    EXPECT_EQ(tcp_option(*ends.to, SOL_SOCKET, SO_KEEPALIVE), 1);
    const int idle = tcp_option(*ends.to, IPPROTO_TCP, TCP_KEEPIDLE);
    const int period = tcp_option(*ends.to, IPPROTO_TCP, TCP_KEEPINTVL);
    const int probes = tcp_option(*ends.to, IPPROTO_TCP, TCP_KEEPCNT);
    EXPECT_GE(probes, 1);
    EXPECT_LE(idle + probes * period, limit);
    EXPECT_GT(idle + (probes + 1) * period, limit);
    EXPECT_EQ(tcp_option(*ends.to, IPPROTO_TCP, TCP_USER_TIMEOUT), 1000 * limit);
  }
  const Ends here;
  EXPECT_NO_THROW(here.to->keep_alive(std::chrono::seconds(2)));
  EXPECT_THROW(here.to->keep_alive(std::chrono::seconds(1)), CheckFailed);
}

TEST(ControlChannel, LosesAPeerThatLetsDataWaitBeyondTheLimit) {
  Ends ends(true);
  ends.to->stall_after(ControlChannel::kForever);
  ends.to->keep_alive(std::chrono::seconds(2));
  const std::vector<std::byte> much(64 << 20);
  EXPECT_EQ(error_of([&] { ends.to->send(Kind::kPlan, 1, much); }),
            "A is unreachable: Connection timed out");
}

}  // namespace
}  // namespace trireme::test_control_channel
