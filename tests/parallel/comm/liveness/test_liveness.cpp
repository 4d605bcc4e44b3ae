// Conclusions of a rank from the board and from life lines, with simulated time: look(1) advances
// one second.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <thread>

#include "engine/core/error.h"
#include "parallel/comm/liveness/liveness.h"
#include "parallel/comm/liveness/process_state.h"

namespace trireme::test_liveness {
namespace {

constexpr int kFarTooLong = 100;

// Board with two rows: this process is rank 0, a child is rank 1.
class Board {
 public:
  // The child joins, runs `life`, and then waits to be killed.
  explicit Board(const std::function<void(Liveness&)>& life) {
    SharedMemory board = SharedMemory::create(Liveness::board_bytes(2));
    int joined[2];
    EXPECT_EQ(pipe(joined), 0);
    child_ = fork();
    if (child_ == 0) {
      Liveness theirs(1e9);
      theirs.join(SharedMemory::attach(board.address(), board.bytes()), {0, 1}, 1);
      life(theirs);
      [[maybe_unused]] const ssize_t written = write(joined[1], "x", 1);
      for (;;) pause();
    }
    char byte = 0;
    EXPECT_EQ(read(joined[0], &byte, 1), 1);
    close(joined[0]);
    close(joined[1]);
    name_ = concat("rank 1 (process ", child_, " on here)");
    mine_.introduce(0, {"rank 0", name_});
    mine_.join(std::move(board), {0, 1}, 0);
    mine_.watch();
    mine_.look(0);  // registers the beats so far
  }
  ~Board() {
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
  }
  void send(int signal, char state) const {
    kill(child_, signal);
    while (process_state(child_).letter != state) std::this_thread::yield();
  }
  // Seconds until the loss is reported.
  int seconds_until_lost() {
    for (int s = 1; s <= kFarTooLong; ++s) {
      mine_.look(1);
      if (mine_.lost()) return s;
    }
    return kFarTooLong;
  }
  Liveness& mine() { return mine_; }
  const std::string& name() const { return name_; }
  pid_t child() const { return child_; }

 private:
  pid_t child_ = 0;
  std::string name_;
  Liveness mine_{1e9};
};

void nothing(Liveness&) {}

TEST(Liveness, ADeadProcessIsSeenAtOnce) {
  Board board(nothing);
  board.mine().look(0);
  EXPECT_FALSE(board.mine().lost());
  board.send(SIGKILL, 'Z');
  board.mine().look(0);
  EXPECT_EQ(board.mine().reason(), board.name() + " died");
  EXPECT_EQ(board.mine().cause(), LossCause::kDied);
}

TEST(Liveness, AStoppedProcessIsGivenUpAfterFourSeconds) {
  Board board(nothing);
  board.send(SIGSTOP, 'T');
  EXPECT_EQ(board.seconds_until_lost(), 4);
  EXPECT_EQ(board.mine().reason(),
            board.name() + " has not run for 4 s: it was stopped by a signal");
  EXPECT_EQ(board.mine().cause(), LossCause::kSilent);
}

TEST(Liveness, AProcessWithoutAProcessorIsGivenUpLater) {
  Board board(nothing);
  EXPECT_EQ(board.seconds_until_lost(), 30);
  // The state depends on the progress of the child.
  EXPECT_EQ(board.mine().reason().find(
                board.name() +
                " has not run for 30 s: it gets no processor or hangs in the kernel (state "),
            0u)
      << board.mine().reason();
}

TEST(Liveness, ABeatingProcessIsNeverGivenUp) {
  // Rank 0 reads rank 1's row; here both are this process.
  Liveness theirs(1e9), mine(1e9);
  SharedMemory board = SharedMemory::create(Liveness::board_bytes(2));
  theirs.join(SharedMemory::attach(board.address(), board.bytes()), {0, 1}, 1);
  mine.introduce(0, {"rank 0", "rank 1"});
  mine.join(std::move(board), {0, 1}, 0);
  mine.watch();
  for (int s = 0; s < kFarTooLong; ++s) {
    theirs.beat();
    mine.look(kStoppedSeconds + 1);
  }
  EXPECT_FALSE(mine.lost()) << mine.reason();
}

TEST(Liveness, ADebuggerHoldsTheWaiting) {
  Board board(nothing);
  if (ptrace(PTRACE_SEIZE, board.child(), nullptr, nullptr) != 0)
    GTEST_SKIP() << "this process may not trace its child";
  ASSERT_EQ(ptrace(PTRACE_INTERRUPT, board.child(), nullptr, nullptr), 0);
  ASSERT_EQ(waitpid(board.child(), nullptr, __WALL), board.child());
  EXPECT_EQ(board.seconds_until_lost(), kFarTooLong);
  EXPECT_TRUE(board.mine().held());
  ASSERT_EQ(ptrace(PTRACE_DETACH, board.child(), nullptr, nullptr), 0);
  EXPECT_EQ(board.seconds_until_lost(), 29);  // it does not beat: it is not a rank of a run
  EXPECT_FALSE(board.mine().held());
}

TEST(Liveness, ARankThatHasEndedMayDie) {
  Board board([](Liveness& theirs) {
    theirs.leave();
    theirs.mark_ended();
  });
  board.send(SIGKILL, 'Z');
  EXPECT_EQ(board.seconds_until_lost(), kFarTooLong);
  EXPECT_TRUE(board.mine().process_handles().empty());
}

TEST(Liveness, ARankThatOnlyLeftMayNot) {
  Board board([](Liveness& theirs) { theirs.leave(); });
  board.send(SIGKILL, 'Z');
  board.mine().look(0);
  EXPECT_EQ(board.mine().reason(), board.name() + " died");
}

TEST(Liveness, ARankEndedBySigtermIsNamedUnlessAllAre) {
  Board board([](Liveness& theirs) { theirs.terminate(); });
  board.mine().look(1);
  EXPECT_FALSE(board.mine().lost());
  board.mine().look(0.1);
  EXPECT_EQ(board.mine().reason(), board.name() + " was ended by SIGTERM");
}

TEST(Liveness, SaysWhereTheRankWaits) {
  Liveness mine(1);
  mine.introduce(5, std::vector<std::string>(8));
  EXPECT_EQ(mine.where(), "rank 5 of 8, between two operations,");
  const std::string name = "tp group 2 of 4", world = "world";
  const OpInfo in_group{CommKind::kAllGather, &name, 1, 2, 96, false};
  EXPECT_EQ(mine.enter(&in_group), nullptr);
  EXPECT_EQ(mine.where(),
            "rank 5 of 8, rank 1 of group \"tp group 2 of 4\" (2 ranks): all_gather of 96 bytes");
  const OpInfo inside{CommKind::kControl, &world, 5, 8, 0, false};
  EXPECT_EQ(mine.enter(&inside), &in_group);
  EXPECT_NE(mine.where().find("all_gather"), std::string::npos) << mine.where();
  mine.enter(&in_group);
  // One thread waits for a message while another is inside an operation.
  const std::string pair = "pp group 0 of 2";
  const OpInfo message{CommKind::kRecv, &pair, 0, 2, 4096, false};
  mine.await(&message);
  EXPECT_EQ(mine.where(),
            "rank 5 of 8, rank 0 of group \"pp group 0 of 2\" (2 ranks): recv of 4096 bytes");
  mine.await(nullptr);
  EXPECT_NE(mine.where().find("all_gather"), std::string::npos) << mine.where();
  mine.enter(nullptr);
  const OpInfo in_world{CommKind::kBarrier, &world, 5, 8, 0, false};
  EXPECT_EQ(mine.enter(&in_world), nullptr);
  EXPECT_EQ(mine.where(), "rank 5 of group \"world\" (8 ranks): barrier of 0 bytes");
  // The operation stopped by a loss stays recorded after the thread has left it, whatever starts
  // next.
  EXPECT_THROW(mine.fail(in_world, "rank 3 died", LossCause::kDied), Error);
  mine.enter(nullptr);
  EXPECT_THROW(mine.throw_if_lost(in_group), Error);
  EXPECT_EQ(mine.where(), "rank 5 of group \"world\" (8 ranks): barrier of 0 bytes");
}

}  // namespace
}  // namespace trireme::test_liveness
