// TCP rendezvous of ranks among foreign connections, which neither join nor delay it.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>
#include <fstream>
#include <memory>
#include <thread>

#include "parallel/comm/transport/rank_acceptor.h"
#include "parallel/comm/transport/rank_rendezvous.h"
#include "parallel/comm/transport/reserved_port.h"

namespace trireme::test_rank_rendezvous {
namespace {

constexpr double kLong = 120;  // seconds

// A port at which ranks of this process meet.
class RendezvousPlace {
 public:
  TcpOptions rank(int rank, double timeout_s = kLong, const std::string& secret = "") const {
    TcpOptions options{"127.0.0.1", port_.number(), rank, 2, timeout_s, secret};
    if (rank == 0) options.listener = fcntl(port_.descriptor(), F_DUPFD_CLOEXEC, 3);
    return options;
  }
  Socket connect() const {
    Socket socket_ = connect_to(resolve_tcp("test", "127.0.0.1", port_.number()).front());
    EXPECT_TRUE(socket_.open()) << std::strerror(errno);
    return socket_;
  }
  std::vector<Socket> idle_connections(size_t count) const {
    std::vector<Socket> out;
    for (size_t i = 0; i < count; ++i) out.push_back(connect());
    return out;
  }
  const ReservedPort& port() const { return port_; }

 private:
  ReservedPort port_;
};

// One rank's part, in its own thread.
class RankThread {
 public:
  explicit RankThread(TcpOptions options)
      : thread_([this, options = std::move(options)] {
          try {
            sockets_ = connect_ranks(options);
          } catch (const std::exception& error) {
            error_ = error.what();
          }
        }) {}
  ~RankThread() { join(); }
  // Error of the rank; empty: it has joined the others.
  const std::string& error() {
    join();
    return error_;
  }
  RankSockets& sockets() {
    EXPECT_EQ(error(), "");
    return sockets_;
  }

 private:
  void join() {
    if (thread_.joinable()) thread_.join();
  }
  RankSockets sockets_;
  std::string error_;
  std::thread thread_;
};

template <class T>
T receive(const Socket& socket_) {
  T value;
  EXPECT_EQ(recv(socket_.fd(), &value, sizeof value, MSG_WAITALL), ssize_t{sizeof value});
  return value;
}

template <class T>
void transmit(const Socket& socket_, const T& value) {
  EXPECT_EQ(send(socket_.fd(), &value, sizeof value, MSG_NOSIGNAL), ssize_t{sizeof value});
}

bool closed_by_peer(const Socket& socket_) {
  char byte = 0;
  return recv(socket_.fd(), &byte, 1, 0) <= 0;
}

// A process that impersonates rank 0: accepts rank 1's greeting for a challenge of its choice.
struct FalseMaster {
  RankGreeting greeting_for(const RankChallenge& challenge, const RankVerdict& verdict) const {
    const Socket guest(accept(port.descriptor(), nullptr, nullptr));
    transmit(guest, challenge);
    const auto greeting = receive<RankGreeting>(guest);
    transmit(guest, verdict);
    return greeting;
  }
  ReservedPort port;
};

TEST(RankRendezvous, TimesOutHoweverManyStrangersAreConnected) {
  const RendezvousPlace place;
  const std::vector<Socket> strangers = place.idle_connections(300);
  EXPECT_NE(RankThread(place.rank(0, 1.0)).error().find("1 of 2 ranks have not connected"),
            std::string::npos);
}

// Repeated connections extend no deadline: neither silent ones nor partial greetings.
TEST(RankRendezvous, ItsDeadlineIsNotRenewedByStrangers) {
  const RendezvousPlace place;
  std::atomic<bool> stop{false};
  std::atomic<int> connected{0};
  std::thread strangers([&] {
    while (!stop) {
      const Socket silent = place.connect(), begins = place.connect();
      (void)send(begins.fd(), &kRankMagic, sizeof kRankMagic, MSG_NOSIGNAL);
      connected += 2;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  });
  const auto begin = std::chrono::steady_clock::now();
  const std::string error = RankThread(place.rank(0, 1.0)).error();
  const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - begin;
  stop = true;
  strangers.join();
  EXPECT_NE(error.find("1 of 2 ranks have not connected (rank 1) within 1 s"), std::string::npos)
      << error;
  EXPECT_GT(connected, 4);
  EXPECT_GE(waited.count(), 1.0);
  EXPECT_LT(waited.count(), kLong / 4) << "ten strangers a second would renew it for ever";
}

size_t count_of(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(RankRendezvous, SaysWhomItWaitsForLongBeforeItGivesUp) {
  testing::internal::CaptureStderr();
  const RendezvousPlace place;
  (void)RankThread(place.rank(0, 0.8)).error();
  const std::string zero = testing::internal::GetCapturedStderr();
  EXPECT_EQ(count_of(zero, concat("waiting at 127.0.0.1:", place.port().number(),
                                  " for 1 of 2 ranks (rank 1); giving up after 0.8 s")),
            1u)
      << zero;
  testing::internal::CaptureStderr();
  TcpOptions nobody = place.rank(1, 0.8);
  nobody.master_address = "127.0.0.3";  // no listener there
  const std::string error = RankThread(nobody).error();
  const std::string one = testing::internal::GetCapturedStderr();
  EXPECT_EQ(count_of(one, "rank 1 waits for rank 0 at 127.0.0.3:"), 1u) << one;
  EXPECT_NE(error.find("rank 1 found no rank 0 at 127.0.0.3:"), std::string::npos) << error;
}

// A connection that the other machine neither accepts nor refuses would be retried for two minutes.
TEST(RankRendezvous, ASilentAddressDoesNotOutlastItsDeadline) {
  const Socket full(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const TcpAddress any = resolve_tcp("test", "127.0.0.1", 0).front();
  ASSERT_EQ(bind(full.fd(), reinterpret_cast<const sockaddr*>(&any.storage),
                 static_cast<socklen_t>(any.length)),
            0);
  ASSERT_EQ(listen(full.fd(), 0), 0);
  const TcpAddress address = local_address(full);
  std::vector<Socket> queued;
  const auto soon = [] {
    return std::chrono::steady_clock::now() + std::chrono::milliseconds(500);
  };
  do queued.push_back(connect_to(address, soon()));
  while (queued.back().open() && queued.size() < 100);
  ASSERT_FALSE(queued.back().open()) << "its queue is never full";
  const auto begin = std::chrono::steady_clock::now();
  const std::string error =
      RankThread(TcpOptions{"127.0.0.1", address.port(), 1, 2, 1.0, ""}).error();
  EXPECT_NE(error.find("rank 1 found no rank 0"), std::string::npos) << error;
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
}

// After the rendezvous the ports are closed to other connections.
TEST(RankRendezvous, ClosesItsPorts) {
  const ReservedPort taken;  // of 127.0.0.1; the ranks meet at another address
  const auto options = [&](int rank) {
    return TcpOptions{"127.0.0.4", taken.number(), rank, 3, kLong};
  };
  RankThread zero(options(0)), one(options(1)), two(options(2));
  for (RankThread* rank : {&zero, &one, &two}) EXPECT_EQ(rank->error(), "");
  EXPECT_FALSE(connect_to(resolve_tcp("test", "127.0.0.4", taken.number()).front()).open());
  EXPECT_EQ(errno, ECONNREFUSED);
}

TEST(RankRendezvous, SilentStrangersDoNotKeepRanksOut) {
  const RendezvousPlace place;
  const std::vector<Socket> strangers = place.idle_connections(2 * RankAcceptor::kMaxPending);
  RankThread zero(place.rank(0)), one(place.rank(1));
  EXPECT_EQ(one.error(), "");
  EXPECT_EQ(zero.error(), "");
}

TEST(RankRendezvous, ClosesWhatIsNoRank) {
  const RendezvousPlace place;
  RankThread zero(place.rank(0, kLong, "the secret of a run"));
  const Socket noise = place.connect(), wrong = place.connect();
  EXPECT_EQ(receive<RankChallenge>(noise).magic, kRankMagic);
  transmit(noise, std::array<char, 16>{"GET / HTTP/1.1"});
  EXPECT_TRUE(closed_by_peer(noise));
  // A greeting without the secret.
  const auto challenge = receive<RankChallenge>(wrong);
  RankGreeting greeting{.rank = 1, .size = 2, .port = 1};
  greeting.proof = greeting_proof("", challenge, greeting);
  transmit(wrong, greeting);
  EXPECT_EQ(receive<RankVerdict>(wrong).refusal, RankRefusal::kSecret);
  EXPECT_TRUE(closed_by_peer(wrong));
  RankThread other(place.rank(1, kLong, "the secret of another run"));
  EXPECT_NE(other.error().find("TRIREME_COMM_SECRET"), std::string::npos) << other.error();
  RankThread one(place.rank(1, kLong, "the secret of a run"));
  EXPECT_EQ(one.error(), "");
  EXPECT_EQ(zero.error(), "");
}

TEST(RankRendezvous, RefusesAReplayedGreeting) {
  const std::string secret = "the secret of a run";
  const FalseMaster trap;
  const RendezvousPlace place;
  RankThread zero(place.rank(0, kLong, secret));
  RankThread victim(TcpOptions{"127.0.0.1", trap.port.number(), 1, 2, kLong, secret});
  const RankGreeting recorded = trap.greeting_for({}, {.refusal = RankRefusal::kTaken});
  EXPECT_NE(victim.error(), "");
  const Socket stranger = place.connect();
  (void)receive<RankChallenge>(stranger);
  transmit(stranger, recorded);
  EXPECT_EQ(receive<RankVerdict>(stranger).refusal, RankRefusal::kSecret);
  RankThread one(place.rank(1, kLong, secret));
  EXPECT_EQ(one.error(), "");
  EXPECT_EQ(zero.error(), "");
}

TEST(RankRendezvous, ARankChecksWhoListens) {
  const FalseMaster trap;
  RankThread victim(TcpOptions{"127.0.0.1", trap.port.number(), 1, 2, kLong, "the run's secret"});
  (void)trap.greeting_for({}, {});
  EXPECT_NE(victim.error().find("does not know the secret"), std::string::npos) << victim.error();
}

// Reserved port of 127.0.0.1 that is free at `address`, too: another process may have it there.
std::unique_ptr<ReservedPort> port_free_at(const std::string& address) {
  constexpr int kAttempts = 100;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    auto port = std::make_unique<ReservedPort>();
    if (listen_at(resolve_tcp("address", address, port->number()).front()).open()) return port;
  }
  throw Error(concat("none of ", kAttempts, " reserved ports is free at ", address, ": ",
                     std::strerror(errno)));
}

// Rank 0 at another address of the loopback network does not occupy the port of this one.
TEST(RankRendezvous, ListensAtOneAddressOnly) {
  // An address of this process alone.
  const auto process = static_cast<uint32_t>(getpid());
  const std::string address = concat("127.201.", process / 250 % 250 + 1, ".", process % 250 + 1);
  const auto reserved = port_free_at(address);
  const ReservedPort& taken = *reserved;
  const auto options = [&](int rank) {
    return TcpOptions{address, taken.number(), rank, 2, kLong};
  };
  RankThread zero(options(0)), one(options(1));
  EXPECT_EQ(one.error(), "");
  EXPECT_EQ(zero.error(), "");
  for (const Socket& line : one.sockets().messages)
    if (line.open()) {
      EXPECT_EQ(peer_address(line).text(), concat(address, ":", taken.number()));
    }
  TcpOptions everywhere = options(0);
  everywhere.listen_address = "*";
  EXPECT_THROW(connect_ranks(everywhere), InputError);
  TcpOptions elsewhere{"192.0.2.1", taken.number(), 0, 2, 1.0};  // unassigned: RFC 5737
  EXPECT_THROW(connect_ranks(elsewhere), InputError);
}

TEST(RankRendezvous, TakesOverOnlyASocketThatListensAtItsPort) {
  const ReservedPort other;
  const RendezvousPlace place;
  TcpOptions options = place.rank(0, 1.0);
  close(options.listener);
  options.listener = fcntl(other.descriptor(), F_DUPFD_CLOEXEC, 3);
  EXPECT_THROW(connect_ranks(options), InputError);
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe(ends.data()), 0);
  options.listener = ends[0];
  EXPECT_THROW(connect_ranks(options), InputError);
  close(ends[1]);
}

// CPU seconds of this process so far.
double processor_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

TEST(RankRendezvous, DoesNotSpinWithoutDescriptors) {
  const RendezvousPlace place;
  const std::vector<Socket> strangers = place.idle_connections(1);
  TcpOptions options = place.rank(0, 2.0);
  const pid_t child = fork();
  if (child == 0) {
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = static_cast<rlim_t>(options.listener + 1);
    int code = setrlimit(RLIMIT_NOFILE, &limit) == 0 ? 0 : 1;
    for (int fd = 0; fd <= options.listener; ++fd)  // no gaps
      if (fcntl(fd, F_GETFD) < 0) dup2(0, fd);
    const double before = processor_seconds();
    try {
      (void)connect_ranks(options);
      code = 2;
    } catch (const Error& error) {
      if (error.code() != ExitCode::kLostRank) code = 3;
    }
    if (processor_seconds() - before > 0.7) code = 4;  // of the two seconds that it waits
    _exit(code);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  close(options.listener);
}

// Peak resident size of this process so far.
int64_t peak_bytes() {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("VmHWM:")) return std::stoll(line.substr(6)) << 10;
  return 0;
}

// Error of rank 0, which waits for 4 bytes, when rank 1 sends the header of another message and
// disconnects.
std::string error_after_header(int64_t tag, int64_t bytes) {
  const RendezvousPlace place;
  RankThread one(place.rank(1));
  const auto transport = make_tcp_transport(place.rank(0));
  {
    const std::array<int64_t, 2> header{tag, bytes};
    transmit(one.sockets().messages[0], header);
    one.sockets().messages[0].shut_down();
  }
  Liveness liveness(kLong);
  const std::string group = "world";
  const OpInfo op{CommKind::kRecv, &group, 0, 2, 4, false};
  liveness.introduce(0, {"rank 0", "rank 1"});
  int32_t value = 0;
  const RecvPart wanted{1, 5, &value, sizeof value};
  try {
    transport->exchange({}, {&wanted, 1}, op, liveness);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(RankRendezvous, AnAnnouncedMessageTakesNoMemoryBeforeItArrives) {
  const int64_t before = peak_bytes();
  EXPECT_NE(error_after_header(7, int64_t{3} << 30).find("closed its connection"),
            std::string::npos);
  EXPECT_LT(peak_bytes() - before, int64_t{1} << 30);
  EXPECT_NE(error_after_header(7, int64_t{1} << 40).find("no receive expects"), std::string::npos);
  EXPECT_NE(error_after_header(5, int64_t{1} << 40), "") << "not the 4 bytes of its receive";
  EXPECT_NE(error_after_header(-1, 4).find("damaged"), std::string::npos);
}

}  // namespace
}  // namespace trireme::test_rank_rendezvous
