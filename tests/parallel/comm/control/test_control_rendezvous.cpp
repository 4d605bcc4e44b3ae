#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <thread>

#include "engine/core/error.h"
#include "parallel/comm/control/control_rendezvous.h"

namespace trireme::test_control_rendezvous {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLong{120'000};

enum class Kind : uint32_t { kPlan = kFirstMessageKind, kBeat };

std::unique_ptr<ControlListener::ConnectedRank> accepted(ControlListener& listener) {
  for (int i = 0; i < 1200; ++i)
    if (auto peer = listener.accept(milliseconds(100))) return peer;
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
    const auto peer = accepted(listener);
    connecting.join();
    ASSERT_NE(peer, nullptr);
    EXPECT_EQ(peer->rank, 3);
    EXPECT_EQ(peer->process, getpid());
    peer->channel->send(Kind::kPlan, 9);
    EXPECT_EQ(rank->receive(kLong)->number, 9u);
    rank->send(Kind::kBeat, 4);
    EXPECT_EQ(peer->channel->receive(kLong)->number, 4u);
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
  const auto peer = accepted(listener);
  rank.join();
  ASSERT_NE(peer, nullptr);
  EXPECT_EQ(peer->rank, 2);
  EXPECT_EQ(listener.accept(ControlListener::kHandshake + milliseconds(500)), nullptr);
  EXPECT_EQ(strangers.left(), 0);
}

TEST(ControlRendezvous, LetsManyStrangersKeepOutNobody) {
  ControlListener listener = ControlListener::on_address("127.0.0.1");
  constexpr int kMax = static_cast<int>(ControlListener::kMaxPending);
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

}  // namespace
}  // namespace trireme::test_control_rendezvous
