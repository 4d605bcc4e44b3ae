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
#include "parallel/comm/control/records.h"
#include "parallel/comm/transport/tcp_address.h"

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

constexpr ControlPeers kSites{"site", "sites", "the coordinator", 7};
const char* const kSecret = "of all our sites";

template <class Expected>
std::string error_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const Expected& error) {
    return error.what();
  } catch (const std::exception& error) {
    return concat("another error: ", error.what());
  }
  return "no error";
}

int port_of(const ControlListener& listener) {
  const std::string& where = listener.address().where;
  return std::stoi(where.substr(where.rfind(':') + 1));
}

TEST(ControlRendezvous, ConnectsSitesAtAFixedPortWithTheSecretOfAUser) {
  int port = 0;  // the system's choice, then fixed: a coordinator that restarts has it at once
  for (int start = 0; start < 2; ++start) {
    ControlListener listener = ControlListener::on_address("127.0.0.1", port, kSecret, kSites);
    if (start > 0) {
      EXPECT_EQ(port_of(listener), port);
    }
    port = port_of(listener);
    EXPECT_EQ(listener.address().secret, kSecret);
    const ControlAddress address = ControlAddress::tcp("127.0.0.1", port, kSecret, kSites);
    EXPECT_EQ(address.where, listener.address().where);
    std::unique_ptr<ControlChannel> site;
    std::thread connecting([&] { site = connect_control_channel(address, 2, kLong, kSites); });
    const auto peer = accepted(listener);
    connecting.join();
    ASSERT_NE(peer, nullptr);
    EXPECT_EQ(peer->rank, 2);
    EXPECT_EQ(peer->channel->peer(), concat("site 2 (process ", getpid(), ")"));
    EXPECT_EQ(site->peer(), "the coordinator");
    ControlAddress wrong = address;
    wrong.secret += '!';
    std::thread stranger([&] {
      EXPECT_EQ(error_of<Error>([&] { connect_control_channel(wrong, 0, kLong, kSites); }),
                "the coordinator closed the connection");
    });
    EXPECT_EQ(listener.accept(milliseconds(500)), nullptr);
    stranger.join();
  }
}

TEST(ControlRendezvous, ListensAtIpv6Addresses) {
  if (!listen_at(resolve_tcp("test", "::1", 0).front()).open()) GTEST_SKIP() << "no IPv6";
  ControlListener listener = ControlListener::on_address("::1");
  EXPECT_TRUE(listener.address().where.starts_with("tcp:[::1]:")) << listener.address().where;
  for (const char* host : {"::1", "[::1]"}) {
    ControlAddress address =
        ControlAddress::tcp(host, port_of(listener), listener.address().secret);
    EXPECT_EQ(address.where, listener.address().where);
    std::thread rank([&] { EXPECT_NO_THROW(connect_control_channel(address, 0, kLong)); });
    EXPECT_NE(accepted(listener), nullptr);
    rank.join();
  }
}

TEST(ControlRendezvous, NamesWhatItCannotListenAt) {
  const ControlListener first = ControlListener::on_address("127.0.0.1", 0, kSecret, kSites);
  const auto listen_for_sites = [&](const char* host, int port, const char* secret) {
    return error_of<InputError>([&] { ControlListener::on_address(host, port, secret, kSites); });
  };
  EXPECT_EQ(listen_for_sites("127.0.0.1", port_of(first), kSecret),
            concat("cannot listen for sites on \"127.0.0.1\" port ", port_of(first),
                   ": Address already in use; choose another port, or end the process that uses "
                   "this one"));
  {
    const int port = port_of(ControlListener::on_address("127.0.0.1"));
    EXPECT_EQ(listen_for_sites("127.0.0.1", port, kSecret), "no error");  // as it says
  }
  EXPECT_EQ(listen_for_sites("203.0.113.1", 0, kSecret),
            "cannot listen for sites on \"203.0.113.1\": Cannot assign requested address; name an "
            "address of this machine that the others reach");
  const std::string unknown = listen_for_sites("no.such.host.invalid", 0, kSecret);
  EXPECT_TRUE(unknown.starts_with(
      "cannot resolve the address \"no.such.host.invalid\" of the sites' control channel: "));
  EXPECT_TRUE(unknown.ends_with("; give a numeric address, or a name that resolves here"));
  EXPECT_EQ(listen_for_sites("127.0.0.1", 65536, kSecret),
            "the port of the sites' control channel is 65536, expected 0 to 65535");
  EXPECT_EQ(listen_for_sites("127.0.0.1", 0, "fifteen letters"),
            "the secret of the sites' control channel has 15 characters, expected at least 16; "
            "give a longer one, such as the output of openssl rand -hex 32");
}

TEST(ControlRendezvous, NamesWhatItCannotConnectTo) {
  const std::string secret(16, 's');
  const auto address_error = [&](int port, const std::string& words) {
    return error_of<InputError>([&] { ControlAddress::tcp("a", port, words, kSites); });
  };
  EXPECT_EQ(address_error(0, secret),
            "the port of the sites' control channel is 0, expected 1 to 65535");
  EXPECT_TRUE(address_error(1, secret.substr(1)).starts_with("the secret of the sites'"));
  EXPECT_EQ(address_error(1, secret), "no error");
  int port = 0;
  {
    const ControlListener gone = ControlListener::on_address("127.0.0.1");
    port = port_of(gone);
  }
  const ControlAddress nobody = ControlAddress::tcp("127.0.0.1", port, secret, kSites);
  EXPECT_EQ(error_of<Error>([&] { connect_control_channel(nobody, 0, milliseconds(100), kSites); }),
            concat("no process listens for sites at tcp:127.0.0.1:", port));
}

std::string rejection_of(ControlListener& listener, int rank, const ControlPeers& peers) {
  std::string why;
  std::atomic<bool> done = false;
  std::thread other([&] {
    why = error_of<InputError>(
        [&] { connect_control_channel(listener.address(), rank, kLong, peers); });
    done = true;
  });
  while (!done) EXPECT_EQ(listener.accept(milliseconds(20)), nullptr);
  other.join();
  return why;
}

TEST(ControlRendezvous, NamesBothVersionsToAPeerWithAnotherProtocol) {
  ControlListener listener = ControlListener::on_address("127.0.0.1", 0, kSecret, kSites);
  ControlPeers newer = kSites;
  newer.protocol = 8;
  EXPECT_EQ(rejection_of(listener, 3, newer),
            "rejected by the coordinator: site 3 has version 8 of the sites' protocol, the "
            "coordinator has version 7: start the same release of the program everywhere");
  ControlPeers exact = kSites;
  exact.protocol = ControlPeers::kSameBuild;
  EXPECT_NE(rejection_of(listener, 3, exact).find("has version 0 of"), std::string::npos);
  std::thread site(
      [&] { EXPECT_NO_THROW(connect_control_channel(listener.address(), 3, kLong, kSites)); });
  EXPECT_NE(accepted(listener), nullptr);  // the same release
  site.join();
}

// Only a listener that knows the secret can end a site.
TEST(ControlRendezvous, BelievesNoRejectionOfAStranger) {
  const Socket listening = listen_at(resolve_tcp("test", "127.0.0.1", 0).front());
  const ControlAddress address =
      ControlAddress::tcp("127.0.0.1", local_address(listening).port(), kSecret, kSites);
  std::string why;
  std::thread site([&] {
    why = error_of<BadMessage>([&] { connect_control_channel(address, 0, kLong, kSites); });
  });
  ControlChannel stranger(Socket(accept(listening.fd(), nullptr, nullptr)), "a site");
  enum class Handshake : uint32_t { kChallenge = 1, kHello, kWelcome, kRejected };
  stranger.send(Handshake::kChallenge, 0, std::vector<std::byte>(32));
  EXPECT_TRUE(stranger.receive(kLong)->is(Handshake::kHello));
  RecordWriter writer;
  writer.put(std::string("start it again as root"));
  writer.put(std::string(32, 'p'));
  stranger.send(Handshake::kRejected, 0, writer.take());
  site.join();
  EXPECT_EQ(why, "the process that listens for sites does not know this job's secret");
}

}  // namespace
}  // namespace trireme::test_control_rendezvous
