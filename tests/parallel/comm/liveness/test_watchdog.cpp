// Processes whose peers die or are stopped: reports of their watchdogs, and that they end.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <functional>
#include <thread>

#include "parallel/comm/rank_state.h"
#include "parallel/comm/transport/reserved_port.h"
#include "parallel/comm/world.h"
#include "tests/support/compare.h"

namespace trireme::test_watchdog {
namespace {

using test::TestTensor;

// How a process ended: its exit code, or minus its signal.
int outcome(pid_t process) {
  int status = 0;
  waitpid(process, &status, 0);
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

// Synchronization of processes without a communicator. Create it before forking.
class Meeting {
 public:
  Meeting()
      : come_(static_cast<std::atomic<int>*>(mmap(nullptr, sizeof(std::atomic<int>),
                                                  PROT_READ | PROT_WRITE,
                                                  MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {}
  ~Meeting() { munmap(come_, sizeof *come_); }
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;
  void come() const { come_->fetch_add(1); }
  void wait_for(int processes) const {
    while (come_->load() < processes) usleep(1000);
  }

 private:
  std::atomic<int>* come_;
};

struct Ended {
  std::vector<int> outcomes;
  std::string announced;  // by all ranks, one line each
};

// Additional actions of a rank.
struct Circumstances {
  std::function<void()> printing = [] {};  // after each line
  std::function<void()> ending = [] {};    // when its World is destroyed
};

// One process per rank, connected over the loopback interface; exit code 0 when fn returns.
Ended run_processes(int ranks, const std::function<void(World&, Liveness&)>& fn,
                    const Circumstances& circumstances = {}) {
  const ReservedPort port;
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  std::vector<pid_t> children;
  for (int r = 0; r < ranks; ++r) {
    const pid_t child = fork();
    if (child != 0) {
      children.push_back(child);
      continue;
    }
    const auto announce = [&](const std::string& message) {
      const std::string line = message + "\n";
      [[maybe_unused]] const ssize_t written = write(ends[1], line.data(), line.size());
      circumstances.printing();
    };
    int code = 0;
    try {
      TcpOptions tcp{"localhost", port.number(), r, ranks, 60};
      if (r == 0) tcp.listener = port.descriptor();
      const auto state = connect_rank(make_tcp_transport(tcp), CommOptions{}, "", announce);
      World world(state);
      fn(world, state->liveness);
    } catch (const Error& e) {
      code = static_cast<int>(e.code());
    }
    circumstances.ending();
    _exit(code);
  }
  close(ends[1]);
  Ended ended;
  char buffer[4096];
  for (ssize_t got; (got = read(ends[0], buffer, sizeof buffer)) > 0;)
    ended.announced.append(buffer, static_cast<size_t>(got));
  close(ends[0]);
  for (const pid_t child : children) ended.outcomes.push_back(outcome(child));
  return ended;
}

constexpr int kLost = static_cast<int>(ExitCode::kLostRank);

void reduce_forever(World& world) {
  const TestTensor data(DType::kF32, {100});
  for (;;) world.world().all_reduce(*data);
}

// Arrives as soon as the rank waits in the operation that `words` names.
void come_when_waiting(const Meeting& meeting, const Liveness& liveness, const char* words) {
  std::thread([&meeting, &liveness, words] {
    while (liveness.where().find(words) == std::string::npos) usleep(1000);
    meeting.come();
  }).detach();
}

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; ++at) ++found;
  return found;
}

TEST(Watchdog, SaysNothingOfARunThatEndsWell) {
  const Ended ended = run_processes(3, [](World& world, Liveness&) {
    world.world().barrier();
    if (world.rank() == 1) usleep(300'000);
  });
  EXPECT_EQ(ended.announced, "");
  EXPECT_EQ(ended.outcomes, (std::vector<int>{0, 0, 0}));
}

TEST(Watchdog, EndsARankThatCannotLeave) {
  const Meeting meeting;
  const Ended ended = run_processes(2, [&](World& world, Liveness&) {
    world.world().barrier();
    meeting.come();  // the other rank is between two operations
    meeting.wait_for(2);
    if (world.rank() == 1) kill(getpid(), SIGKILL);
    for (;;) pause();  // as inside a library that waits for the dead rank
  });
  EXPECT_EQ(ended.outcomes, (std::vector<int>{kLost, -SIGKILL}));
  EXPECT_EQ(
      count(ended.announced, "rank 0 of 2, between two operations, stopped: rank 1 (process "), 1u)
      << ended.announced;
}

void hang() {
  for (;;) pause();
}

TEST(Watchdog, EndsARankThatCannotPrint) {
  const Ended ended = run_processes(2,
                                    [](World& world, Liveness&) {
                                      world.world().barrier();
                                      if (world.rank() == 1) kill(getpid(), SIGKILL);
                                      hang();
                                    },
                                    {.printing = hang});
  EXPECT_EQ(ended.outcomes, (std::vector<int>{kLost, -SIGKILL}));
}

TEST(Watchdog, EndsARankThatLeavesAndDoesNotEnd) {
  const Ended ended = run_processes(2,
                                    [](World& world, Liveness&) {
                                      world.world().barrier();
                                      if (world.rank() == 1) kill(getpid(), SIGKILL);
                                      reduce_forever(world);
                                    },
                                    {.ending = hang});
  EXPECT_EQ(ended.outcomes, (std::vector<int>{kLost, -SIGKILL}));
}

TEST(Watchdog, ItsHandlerPutBackLaterSwallowsNoSigterm) {
  static struct sigaction handler {};
  const Ended ended = run_processes(
      2, [](World&, Liveness&) { sigaction(SIGTERM, nullptr, &handler); }, {.ending = [] {
        sigaction(SIGTERM, &handler, nullptr);
        raise(SIGTERM);
      }});
  EXPECT_EQ(ended.outcomes, (std::vector<int>{-SIGTERM, -SIGTERM}));
  EXPECT_EQ(ended.announced, "");
}

TEST(Watchdog, NamesTheOperationOfEveryRankThatWaits) {
  const Meeting meeting;
  const Ended ended = run_processes(4, [&](World& world, Liveness& liveness) {
    world.world().barrier();
    if (world.rank() == 2) {
      meeting.wait_for(3);
      kill(getpid(), SIGKILL);
    }
    come_when_waiting(meeting, liveness, "all_reduce");
    reduce_forever(world);
  });
  EXPECT_EQ(ended.outcomes, (std::vector<int>{kLost, kLost, -SIGKILL, kLost}));
  for (int r : {0, 1, 3})
    EXPECT_EQ(
        count(ended.announced, concat("rank ", r,
                                      " of group \"world\" (4 ranks): all_reduce of 400 bytes "
                                      "stopped: rank 2 (process ")),
        1u)
        << ended.announced;
}

// Rank 0 expects a message of rank 1, which dies when rank 0 waits in the operation that `words`
// names. meanwhile: run by rank 0 until then.
Ended die_before_a_message(const char* words,
                           const std::function<void(World&, const Work&)>& meanwhile) {
  const Meeting meeting;
  return run_processes(3, [&](World& world, Liveness& liveness) {
    const auto pair = world.world().split(world.rank() / 2, world.rank(), "pair");
    if (world.rank() == 1) {
      meeting.wait_for(1);
      kill(getpid(), SIGKILL);
    }
    if (world.rank() == 0) come_when_waiting(meeting, liveness, words);
    const TestTensor data(DType::kF32, {100});
    meanwhile(world, world.rank() == 0 ? pair->post_recv(*data, 1) : Work());
  });
}

TEST(Watchdog, NamesThePostedMessageThatIsAwaited) {
  const Ended ended = die_before_a_message("recv of 400 ", [](World& world, const Work& message) {
    if (world.rank() == 0) message.wait();
    for (;;) pause();
  });
  EXPECT_EQ(ended.outcomes, (std::vector<int>{kLost, -SIGKILL, kLost}));
  EXPECT_EQ(count(ended.announced,
                  "rank 0 of 3, rank 0 of group \"pair\" (2 ranks): recv of 400 "
                  "bytes stopped: rank 1 (process "),
            1u)
      << ended.announced;
}

TEST(Watchdog, NamesTheOperationThatIsAwaitedBesidePostedMessages) {
  const Ended ended =
      die_before_a_message("all_reduce", [](World& world, const Work&) { reduce_forever(world); });
  EXPECT_EQ(ended.outcomes, (std::vector<int>{kLost, -SIGKILL, kLost}));
  EXPECT_EQ(count(ended.announced,
                  "rank 0 of group \"world\" (3 ranks): all_reduce of 400 bytes "
                  "stopped: rank 1 (process "),
            1u)
      << ended.announced;
}

TEST(Watchdog, ARankEndedBySigtermIsNamedAndKeepsItsSignal) {
  const Ended ended = run_processes(2, [](World& world, Liveness&) {
    world.world().barrier();
    if (world.rank() == 1) {
      raise(SIGTERM);
      for (;;) pause();
    }
    reduce_forever(world);
  });
  EXPECT_EQ(ended.outcomes, (std::vector<int>{kLost, -SIGTERM}));
  EXPECT_EQ(count(ended.announced, "was ended by SIGTERM"), 1u) << ended.announced;
}

TEST(Watchdog, ASharedSigtermIsNoLoss) {
  const Meeting meeting;
  const Ended ended = run_processes(3, [&](World& world, Liveness&) {
    world.world().barrier();
    meeting.come();
    meeting.wait_for(3);
    raise(SIGTERM);
    for (;;) pause();
  });
  EXPECT_EQ(ended.outcomes, (std::vector<int>{-SIGTERM, -SIGTERM, -SIGTERM}));
  EXPECT_EQ(ended.announced, "");
}

// Training saves a checkpoint on SIGTERM where no rank is lost.
std::atomic<int> g_terminations{0};
void count_termination() { ++g_terminations; }

TEST(Watchdog, ASigtermCallsWhatTheRankHasForIt) {
  const Ended ended = run_processes(2, [](World& world, Liveness&) {
    world.on_termination(count_termination);
    world.world().barrier();
    if (world.rank() == 1) {
      raise(SIGTERM);
      while (g_terminations == 0) usleep(1000);
    }
    world.world().barrier();
  });
  EXPECT_EQ(ended.outcomes, (std::vector<int>{0, 0}));
  EXPECT_EQ(ended.announced, "");
}

TEST(Watchdog, ASigtermBesideADeathIsALossForThatRankToo) {
  const Ended ended = run_processes(2, [](World& world, Liveness&) {
    world.on_termination(count_termination);
    world.world().barrier();
    if (world.rank() == 1) kill(getpid(), SIGKILL);
    raise(SIGTERM);
    reduce_forever(world);
  });
  EXPECT_EQ(ended.outcomes, (std::vector<int>{kLost, -SIGKILL}));
  EXPECT_EQ(count(ended.announced, "died"), 1u) << ended.announced;
}

TEST(Watchdog, AReportedFailureLeavesTheOthersTheirOwn) {
  const Meeting meeting;
  const Ended ended = run_processes(3, [&](World& world, Liveness&) {
    world.world().barrier();
    meeting.come();  // no rank is inside the communicator when the first one fails
    meeting.wait_for(3);
    throw InputError("all ranks find the same mistake");
  });
  EXPECT_EQ(ended.announced, "");
  EXPECT_EQ(ended.outcomes, (std::vector<int>{2, 2, 2}));
}

}  // namespace
}  // namespace trireme::test_watchdog
