#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>

#include "parallel/comm/liveness/peer_links.h"

namespace trireme::test_peer_links {
namespace {

constexpr int kFarTooLong = 100;

// Two ends of a TCP connection over the loopback interface, as between ranks 0 and 1.
struct Line {
  int mine = -1, theirs = -1;
  Line() {
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(bind(listener, generic, length), 0);
    EXPECT_EQ(listen(listener, 1), 0);
    getsockname(listener, generic, &length);
    mine = socket(AF_INET, SOCK_STREAM, 0);
    EXPECT_EQ(connect(mine, generic, length), 0);
    theirs = accept(listener, nullptr, nullptr);
    close(listener);
  }
  ~Line() {
    close(mine);
    if (theirs >= 0) close(theirs);
  }
  // Closes the other end after everything written there has arrived here.
  void hang_up() {
    close(std::exchange(theirs, -1));
    pollfd ended{mine, POLLRDHUP, 0};
    EXPECT_EQ(poll(&ended, 1, 60'000), 1);
  }
  // Waits until everything written at the other end has arrived here.
  void settle() const {
    char byte = 0;
    EXPECT_EQ(recv(mine, &byte, 1, MSG_PEEK), 1);
  }
};

struct TwoRanks {
  Line line;
  Liveness mine{1e9};
  PeerLinks at_mine{{-1, line.mine}}, at_theirs{{line.theirs, -1}};
  TwoRanks() { mine.introduce(0, {"rank 0", "rank 1 (process 7 on there)"}); }
};

TEST(PeerLinks, AnEndedConnectionIsADeath) {
  TwoRanks ranks;
  ranks.at_theirs.beat();
  ranks.line.settle();
  ranks.at_mine.look(1, ranks.mine);
  EXPECT_FALSE(ranks.mine.lost());
  close(std::exchange(ranks.line.theirs, -1));
  char byte = 0;
  EXPECT_EQ(recv(ranks.line.mine, &byte, 1, MSG_PEEK), 0);
  ranks.at_mine.look(0, ranks.mine);
  EXPECT_EQ(ranks.mine.reason(), "rank 1 (process 7 on there) died: its connection ended");
  EXPECT_TRUE(ranks.at_mine.descriptors().empty());
}

TEST(PeerLinks, AfterAGoodbyeItIsNot) {
  TwoRanks ranks;
  ranks.at_theirs.beat();
  ranks.at_theirs.say_goodbye();
  ranks.line.hang_up();
  for (int s = 0; s < kFarTooLong; ++s) ranks.at_mine.look(1, ranks.mine);
  EXPECT_FALSE(ranks.mine.lost()) << ranks.mine.reason();
}

TEST(PeerLinks, ASilentProcessOnALiveMachineDoesNotRun) {
  TwoRanks ranks;
  for (int s = 0; s < 8; ++s) ranks.at_mine.look(1, ranks.mine);
  EXPECT_FALSE(ranks.mine.lost());
  ranks.at_theirs.beat();
  ranks.line.settle();
  for (int s = 0; s < 9; ++s) ranks.at_mine.look(1, ranks.mine);
  EXPECT_FALSE(ranks.mine.lost());
  ranks.at_mine.look(1, ranks.mine);
  EXPECT_EQ(ranks.mine.reason(),
            "rank 1 (process 7 on there) has not run for 9 s: stopped, or its machine gives it no "
            "processor");
  EXPECT_EQ(ranks.mine.cause(), LossCause::kSilent);
}

// A local stream counts bytes that the other end has not read as unacknowledged: its reader plays
// the other machine.
struct TwoMachines {
  int ends[2] = {-1, -1};
  Liveness mine{1e9};
  std::unique_ptr<PeerLinks> links;
  TwoMachines() {
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
    mine.introduce(0, {"rank 0", "rank 1"});
    links = std::make_unique<PeerLinks>(std::vector<int>{-1, ends[0]});
  }
  ~TwoMachines() {
    close(ends[0]);
    close(ends[1]);
  }
  void pass(int seconds, bool acknowledged) {
    for (int s = 0; s < seconds; ++s) {
      links->beat();
      char bytes[64];
      while (acknowledged && recv(ends[1], bytes, sizeof bytes, 0) > 0) {
      }
      links->look(1, mine);
    }
  }
};

TEST(PeerLinks, AMuteMachineIsGivenUpLater) {
  TwoMachines machines;
  machines.pass(29, false);
  EXPECT_FALSE(machines.mine.lost());
  machines.pass(1, false);
  EXPECT_EQ(machines.mine.reason(),
            "rank 1 has not run for 30 s: its machine or the network hangs");
}

TEST(PeerLinks, AfterAMuteTimeTheProcessHasItsTimeAgain) {
  TwoMachines machines;
  machines.pass(12, false);
  machines.pass(8, true);
  EXPECT_FALSE(machines.mine.lost());
  machines.pass(1, true);
  EXPECT_EQ(machines.mine.reason(),
            "rank 1 has not run for 21 s: stopped, or its machine gives it no processor");
}

TEST(PeerLinks, ARankEndedBySigtermIsNamedUnlessAllAre) {
  TwoRanks ranks;
  ranks.at_theirs.beat();
  ranks.at_theirs.say_terminated();
  ranks.line.hang_up();
  ranks.at_mine.look(1, ranks.mine);
  EXPECT_FALSE(ranks.mine.lost());
  EXPECT_TRUE(ranks.at_mine.descriptors().empty());
  ranks.at_mine.look(1, ranks.mine);
  ranks.at_mine.look(0.1, ranks.mine);
  EXPECT_EQ(ranks.mine.reason(), "rank 1 (process 7 on there) was ended by SIGTERM");
  EXPECT_EQ(ranks.mine.cause(), LossCause::kDied);
}

TEST(PeerLinks, ALossIsPassedOnWithItsReason) {
  TwoRanks ranks;
  ranks.at_theirs.beat();
  ranks.at_theirs.broadcast_loss("rank 3 died\nof boredom", LossCause::kDied);
  ranks.line.hang_up();
  ranks.at_mine.look(0, ranks.mine);
  EXPECT_EQ(ranks.mine.reason(), "rank 3 died of boredom");
  EXPECT_EQ(ranks.mine.cause(), LossCause::kDied);
}

}  // namespace
}  // namespace trireme::test_peer_links
