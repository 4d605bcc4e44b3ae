// Ranks as processes that find each other over the loopback interface.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fstream>

#include "parallel/comm/rank_state.h"
#include "parallel/comm/transport/reserved_port.h"
#include "parallel/comm/world.h"
#include "tests/parallel/collective_checks.h"
#include "tests/support/compare.h"

namespace trireme::test_tcp_transport {
namespace {

using test::TestTensor;

// Forks one process per rank and waits for them; each must exit with 0 after fn returned "". Rank
// `killed` (-1: none) must die by SIGKILL instead.
std::string run_processes(int ranks, CommOptions options,
                          const std::function<std::string(World&)>& fn, int killed = -1) {
  options.timeout_s = 120;
  const ReservedPort port;
  int pipe_ends[2];
  if (pipe(pipe_ends) != 0) return "no pipe";
  const auto say = [&](const std::string& text) {
    const std::string line = text + "\n";
    [[maybe_unused]] const ssize_t written = write(pipe_ends[1], line.data(), line.size());
  };
  std::vector<pid_t> children;
  for (int r = 0; r < ranks; ++r) {
    const pid_t child = fork();
    if (child != 0) {
      children.push_back(child);
      continue;
    }
    std::string wrong;
    try {
      TcpOptions tcp{"localhost", port.number(), r, ranks, options.timeout_s};
      if (r == 0) tcp.listener = port.descriptor();
      // A rank that is terminated before it can throw has already reported the loss.
      const auto announce = [&](const std::string& loss) {
        say(concat("rank ", r, " told: ", loss));
      };
      World world(connect_rank(make_tcp_transport(tcp), options, "", announce));
      wrong = fn(world);
    } catch (const std::exception& e) {
      wrong = concat("rank ", r, " threw: ", e.what());
    }
    if (!wrong.empty()) say(wrong);
    _exit(wrong.empty() ? 0 : 1);
  }
  close(pipe_ends[1]);
  std::string problems;
  char buffer[4096];
  for (ssize_t got; (got = read(pipe_ends[0], buffer, sizeof buffer)) > 0;)
    problems.append(buffer, static_cast<size_t>(got));
  close(pipe_ends[0]);
  for (int r = 0; r < ranks; ++r) {
    int status = 0;
    waitpid(children[static_cast<size_t>(r)], &status, 0);
    const bool died = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    if (r == killed && !died) problems += concat("rank ", r, " was not killed\n");
    if (r != killed && !WIFEXITED(status)) problems += concat("rank ", r, " crashed\n");
  }
  return problems;
}

CommOptions options(CommAlgorithm algorithm, int ranks_per_node = 0) {
  CommOptions o;
  o.algorithm = algorithm;
  o.ranks_per_node = ranks_per_node;
  return o;
}

TEST(Tcp, EveryCollective) {
  for (int ranks : {2, 3})
    for (CommAlgorithm algorithm : {CommAlgorithm::kRing, CommAlgorithm::kShm})
      EXPECT_EQ(run_processes(ranks, options(algorithm),
                              [](World& world) { return test::check_collectives(world.world()); }),
                "");
  EXPECT_EQ(run_processes(4, options(CommAlgorithm::kAuto, 2),
                          [](World& world) { return test::check_collectives(world.world()); }),
            "");
}

TEST(Tcp, LongMessagesBothWays) {
  const auto rank = [](World& world) {
    return test::check_all_reduce(world.world(), DType::kF32, 3'000'001);
  };
  EXPECT_EQ(run_processes(3, options(CommAlgorithm::kRing), rank), "");
}

TEST(Tcp, AnUnwantedLongMessageDoesNotBlockAWantedOne) {
  const auto rank = [](World& world) -> std::string {
    Communicator& g = world.world();
    const TestTensor large(DType::kF32, {100'000}), small(DType::kF32, {3});
    if (g.rank() == 0) {
      test::fill(*large, 1);
      test::fill(*small, 2);
      g.send(*large, 1, 1);
      g.send(*small, 1, 2);
      return "";
    }
    g.recv(*small, 0, 2);
    g.recv(*large, 0, 1);
    const bool right = small->as<float>()[2] == static_cast<float>(test::operand(2, 2)) &&
                       large->as<float>()[99'999] == static_cast<float>(test::operand(1, 99'999));
    return right ? "" : "mixed up";
  };
  EXPECT_EQ(run_processes(2, options(CommAlgorithm::kRing), rank), "");
}

TEST(Tcp, AKilledProcessIsNamedByItsPeers) {
  for (CommAlgorithm algorithm : {CommAlgorithm::kRing, CommAlgorithm::kShm}) {
    const auto start = std::chrono::steady_clock::now();
    const std::string problems = run_processes(
        3, options(algorithm),
        [](World& world) -> std::string {
          const TestTensor data(DType::kF32, {10'000});
          for (int k = 0; k < 1'000'000; ++k) {
            if (k == 20 && world.rank() == 1) kill(getpid(), SIGKILL);
            world.world().all_reduce(*data);
          }
          return "nothing happened";
        },
        1);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    EXPECT_LT(took.count(), 60);  // less than the timeout for a peer
    for (int r : {0, 2}) {
      const std::string head =
          concat(": rank ", r, " of group \"world\" (3 ranks): all_reduce of 40000 bytes");
      EXPECT_NE(problems.find(head), std::string::npos) << problems;
    }
    EXPECT_TRUE(problems.find("died") != std::string::npos ||
                problems.find("closed its connection") != std::string::npos)
        << problems;
    EXPECT_EQ(problems.find("was not killed"), std::string::npos) << problems;
  }
}

pid_t start_rank(const ReservedPort& port, int rank, int ranks) {
  const pid_t child = fork();
  if (child != 0) return child;
  try {
    TcpOptions tcp{"localhost", port.number(), rank, ranks, 60};
    if (rank == 0) tcp.listener = port.descriptor();
    World world(connect_rank(make_tcp_transport(tcp), CommOptions{}, ""));
  } catch (const Error& e) {
    _exit(static_cast<int>(e.code()));
  }
  _exit(0);
}

// The first child that ends, and its exit code.
std::pair<pid_t, int> wait_for_rank() {
  int status = 0;
  const pid_t child = waitpid(-1, &status, 0);
  return {child, WIFEXITED(status) ? WEXITSTATUS(status) : -1};
}

// The last rank starts when one was refused: until then rank 0 accepts connections.
TEST(Tcp, OfTwoProcessesWithOneRankOneIsSentAway) {
  const ReservedPort port;
  const pid_t first = start_rank(port, 0, 3);
  start_rank(port, 1, 3);
  start_rank(port, 1, 3);
  const auto [away, code] = wait_for_rank();
  EXPECT_NE(away, first);
  EXPECT_EQ(code, static_cast<int>(ExitCode::kLostRank));
  start_rank(port, 2, 3);
  for (int left = 3; left > 0; --left) EXPECT_EQ(wait_for_rank().second, 0);
}

TEST(Tcp, AMissingRankEndsInATimeout) {
  const ReservedPort port;
  TcpOptions alone{"localhost", port.number(), 0, 2, 0.3};
  alone.listener = dup(port.descriptor());
  EXPECT_THROW(make_tcp_transport(alone), Error);
  const TcpOptions lost{"localhost", port.number(), 1, 2, 0.3};
  EXPECT_THROW(make_tcp_transport(lost), Error);
  const TcpOptions unknown{"no-such-host.invalid", port.number(), 1, 2, 0.3};
  EXPECT_THROW(make_tcp_transport(unknown), InputError);
}

}  // namespace
}  // namespace trireme::test_tcp_transport
