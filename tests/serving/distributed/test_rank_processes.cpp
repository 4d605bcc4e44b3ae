#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <fstream>
#include <thread>

#include "engine/core/error.h"
#include "serving/distributed/rank_processes.h"

namespace trireme::test_rank_processes {
namespace {

using std::chrono::milliseconds;

const std::vector<RankCommand> kSleep = {{.words = {"/bin/sleep", "600"}, .variables = {}}};

TEST(RankProcesses, SayHowTheyEnded) {
  RankProcesses processes(
      {{.words = {"/bin/sh", "-c", "exit 2"}, .variables = {}},
       {.words = {"/bin/sh", "-c", "exit $NUMBER"}, .variables = {{"NUMBER", "2"}}}});
  EXPECT_TRUE(processes.wait(milliseconds(120'000)));
  EXPECT_NE(processes.ended().find("exit code 2"), std::string::npos);
  EXPECT_EQ(processes.exit_code(), 2);
  RankProcesses one(kSleep);
  EXPECT_FALSE(one.wait(milliseconds(10)));
  kill(one.pids().front(), SIGKILL);
  EXPECT_TRUE(one.wait(milliseconds(120'000)));
  EXPECT_NE(one.ended().find("signal 9"), std::string::npos);
  EXPECT_EQ(one.exit_code(), -1);
}

// Sockets of a server's clients are not inherited by ranks that start later.
TEST(RankProcesses, InheritNothingButTheOutputs) {
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe(ends.data()), 0);
  RankProcesses sleeper(kSleep);
  close(ends[1]);
  pollfd other{ends[0], POLLIN, 0};
  EXPECT_EQ(poll(&other, 1, 60'000), 1);  // no other process can write to it
  EXPECT_EQ(other.revents, POLLHUP);
  close(ends[0]);
}

// The end of the starting thread ends them.
TEST(RankProcesses, EndWithTheThreadThatStartedThem) {
  int process = 0;
  std::thread([&] {
    process = start_process(kSleep.front());
    const auto runs = [&] {
      std::string name;
      std::ifstream(concat("/proc/", process, "/comm")) >> name;
      return name == "sleep";
    };
    while (!runs()) std::this_thread::sleep_for(milliseconds(1));
  }).join();
  int status = 0;
  EXPECT_EQ(waitpid(process, &status, 0), process);
  EXPECT_TRUE(WIFSIGNALED(status));
}

}  // namespace
}  // namespace trireme::test_rank_processes
