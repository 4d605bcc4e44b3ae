#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>

#include "engine/core/cpu.h"
#include "engine/core/error.h"
#include "parallel/comm/launcher_environment.h"
#include "parallel/comm/transport/tcp_socket.h"
#include "parallel/launch.h"
#include "tests/parallel/environment.h"
#include "tests/support/scratch_directory.h"

namespace trireme::test_launch {
namespace {

using test::Environment;
using Variables = std::map<std::string, std::string>;

// --ranks starts its own ranks, whatever variables another launcher has left in the environment.
TEST(ClaimRanks, RemovesWhatOtherLaunchersLeft) {
  const std::vector<std::pair<Variables, std::string>> cases = {
      {{{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}},
       "ignoring WORLD_SIZE=2, RANK=0 in"},
      {{{"RANK", "junk"}, {"LOCAL_RANK", "3"}}, "ignoring RANK=junk, LOCAL_RANK=3 in"},
      {{{"OMPI_COMM_WORLD_SIZE", "2"}, {"OMPI_COMM_WORLD_RANK", "1"}, {"PMIX_NAMESPACE", "1"}},
       "ignoring OMPI_COMM_WORLD_SIZE=2, OMPI_COMM_WORLD_RANK=1 in"},
      {{{"PMI_SIZE", "2"}, {"PMI_RANK", "1"}}, "ignoring PMI_SIZE=2, PMI_RANK=1 in"},
      {{{"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_PROCID", "1"}},
       "ignoring SLURM_STEP_NUM_TASKS=2, SLURM_PROCID=1 in"},
      {{{"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_PROCID", "0"}}, ""},  // a batch script
      {{{"OMPI_MCA_btl", "self,tcp"}, {"MASTER_ADDR", "a"}}, ""},    // the user's own
  };
  for (const auto& one : cases) {
    const Environment given(one.first);
    testing::internal::CaptureStderr();
    claim_ranks(2);
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_NE(said.find(one.second), std::string::npos) << said;
    EXPECT_EQ(said.empty(), one.second.empty()) << said;
    EXPECT_EQ(detect_launcher().kind, Launcher::kNone) << one.second;
    EXPECT_EQ(std::getenv("PMIX_NAMESPACE"), nullptr);
    EXPECT_EQ(std::getenv("OMPI_MCA_btl") != nullptr, one.first.contains("OMPI_MCA_btl"));
  }
}

TEST(ClaimRanks, KeepsTheVariablesOfTheRanksThatItStarted) {
  for (const char* starter : {"TRIREME_MPIRUN", kLeaderVariable}) {
    const Environment rank({{"OMPI_COMM_WORLD_SIZE", "2"},
                            {"OMPI_COMM_WORLD_RANK", "1"},
                            {starter, "/usr/bin/mpirun"}});
    claim_ranks(2);
    EXPECT_EQ(detect_launcher().rank, 1) << starter;
    EXPECT_FALSE(must_start_ranks(2)) << starter;
  }
}

TEST(MpirunCommand, HasTheFlagsThatMakeItWork) {
  using Words = std::vector<std::string>;
  EXPECT_EQ(mpirun_command({true, "/usr/bin/mpirun"}, 3, {"trireme", "pretrain"}),
            (Words{"/usr/bin/mpirun", "--allow-run-as-root", "--bind-to", "none", "--map-by",
                   ":OVERSUBSCRIBE", "--stdin", "none", "-n", "3", "trireme", "pretrain"}));
  const Words user = mpirun_command({false, "/usr/bin/mpirun"}, 2, {"trireme"});
  EXPECT_EQ(std::count(user.begin(), user.end(), "--allow-run-as-root"), 0);
  EXPECT_THROW(mpirun_command({false, ""}, 2, {"trireme"}), InputError);
}

std::string value_of(const RankCommand& command, const std::string& name) {
  for (const auto& [key, value] : command.variables)
    if (key == name) return value;
  return "";
}

TEST(RankCommands, StartRanksOnThisMachineThatMeetThere) {
  const auto commands = rank_commands(RankLauncher::kLocal, 3, {"trireme", "serve"}, "a secret");
  ASSERT_EQ(commands.size(), 3u);
  for (size_t rank = 0; rank < 3; ++rank) {
    const RankCommand& command = commands[rank];
    EXPECT_EQ(command.words, (std::vector<std::string>{"trireme", "serve"}));
    EXPECT_EQ(value_of(command, "RANK"), text(rank));
    EXPECT_EQ(value_of(command, "WORLD_SIZE"), "3");
    EXPECT_EQ(value_of(command, "MASTER_ADDR"), "127.0.0.1");
    EXPECT_EQ(value_of(command, "MASTER_PORT"), value_of(commands[0], "MASTER_PORT"));
    EXPECT_EQ(value_of(command, kLeaderVariable), "a secret");
  }
}

// Returns whether a socket can listen on a port of the loopback interface.
bool can_listen(int port, bool reuses) {
  const Socket one(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int yes = reuses ? 1 : 0;
  setsockopt(one.fd(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  return bind(one.fd(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 &&
         listen(one.fd(), 1) == 0;
}

// Groups that start at the same time, and other users of ports, get other ports; rank 0 inherits
// the socket.
TEST(RankCommands, KeepThePortOfTheirRanks) {
  auto commands = rank_commands(RankLauncher::kLocal, 2, {"trireme"}, "a secret");
  const int port = std::stoi(value_of(commands[0], "MASTER_PORT"));
  EXPECT_FALSE(can_listen(port, false));
  EXPECT_FALSE(can_listen(port, true)) << "as a process that sets SO_REUSEADDR too";
  EXPECT_TRUE(commands[0].listens);
  EXPECT_FALSE(commands[1].listens);
  EXPECT_EQ(value_of(commands[0], kListenerVariable), "3");
  EXPECT_EQ(value_of(commands[1], kListenerVariable), "");
  const auto alone = rank_commands(RankLauncher::kLocal, 1, {"trireme"}, "a secret");
  EXPECT_FALSE(alone[0].listens) << "it has nobody to meet";
  EXPECT_EQ(value_of(alone[0], kListenerVariable), "");
  commands.pop_back();
  EXPECT_FALSE(can_listen(port, false));
  commands.clear();
  EXPECT_TRUE(can_listen(port, false));
}

TEST(RankCommands, GiveEachGroupASecretOfItsOwn) {
  const auto commands = rank_commands(RankLauncher::kLocal, 2, {"trireme"}, "a secret");
  const auto others = rank_commands(RankLauncher::kLocal, 2, {"trireme"}, "a secret");
  const std::string secret = value_of(commands[0], kCommSecretVariable);
  EXPECT_EQ(secret.size(), 64u);
  EXPECT_EQ(value_of(commands[1], kCommSecretVariable), secret);
  EXPECT_NE(value_of(others[0], kCommSecretVariable), secret);
}

// The secret is passed in the environment: command lines are readable by every user.
TEST(RankCommands, KeepTheSecretOutOfCommandLines) {
  const test::ScratchDirectory folder;
  for (const char* name : {"mpirun", "srun"}) {
    std::ofstream(folder / name) << "#!/bin/sh\n";
    chmod((folder / name).c_str(), 0755);
  }
  const std::string before = executable_search_path();
  setenv("PATH", folder.path().c_str(), 1);
  for (const RankLauncher launcher : {RankLauncher::kMpirun, RankLauncher::kSrun}) {
    const auto commands = rank_commands(launcher, 8, {"trireme", "serve"}, "a secret");
    ASSERT_EQ(commands.size(), 1u);
    const std::vector<std::string>& words = commands[0].words;
    EXPECT_EQ(value_of(commands[0], kLeaderVariable), "a secret");
    EXPECT_EQ(std::count(words.begin(), words.end(), "a secret"), 0);
    EXPECT_EQ(std::vector<std::string>(words.end() - 2, words.end()),
              (std::vector<std::string>{"trireme", "serve"}));
    const bool named = std::count(words.begin(), words.end(), kLeaderVariable) == 1;
    const bool sized = std::count(words.begin(), words.end(), "--ntasks=8") == 1;
    EXPECT_EQ(named, launcher == RankLauncher::kMpirun);
    EXPECT_EQ(sized, launcher == RankLauncher::kSrun);
  }
  std::filesystem::remove(folder / "srun");
  EXPECT_THROW(rank_commands(RankLauncher::kSrun, 8, {"trireme"}, "a secret"), InputError);
  setenv("PATH", before.c_str(), 1);
}

TEST(RankCommands, AreForTheLauncherThatIsThere) {
  {
    const Environment none({});
    EXPECT_EQ(rank_launcher("auto"), RankLauncher::kLocal);
    EXPECT_EQ(rank_launcher("mpirun"), RankLauncher::kMpirun);
    EXPECT_THROW(rank_launcher("pigeon"), InputError);
  }
  const Environment two(std::map<std::string, std::string>{{"SLURM_JOB_NUM_NODES", "2"}});
  EXPECT_EQ(rank_launcher("auto"), RankLauncher::kSrun);
  EXPECT_EQ(rank_launcher("local"), RankLauncher::kLocal);
  const Environment one(std::map<std::string, std::string>{{"SLURM_JOB_NUM_NODES", "1"}});
  EXPECT_EQ(rank_launcher("auto"), RankLauncher::kLocal);
}

TEST(RankCommands, KeepGroupsApart) {
  const GroupPosition second{.number = 1, .groups = 3};
  const auto commands = rank_commands(RankLauncher::kLocal, 2, {"trireme"}, "a secret", second);
  for (const RankCommand& command : commands)
    EXPECT_EQ(value_of(command, kMachineRanksVariable), "2/6");
  const test::ScratchDirectory folder;
  std::ofstream(folder / "srun") << "#!/bin/sh\n";
  chmod((folder / "srun").c_str(), 0755);
  const std::string before = executable_search_path();
  setenv("PATH", folder.path().c_str(), 1);
  {
    const Environment six(std::map<std::string, std::string>{{"SLURM_JOB_NUM_NODES", "6"}});
    check_groups(RankLauncher::kSrun, 3);
    const auto step = rank_commands(RankLauncher::kSrun, 4, {"trireme"}, "a secret", second);
    for (const char* word : {"--ntasks=4", "--nodes=2", "--relative=2"})
      EXPECT_EQ(std::count(step[0].words.begin(), step[0].words.end(), word), 1) << word;
    EXPECT_THROW(check_groups(RankLauncher::kSrun, 4), InputError);
    EXPECT_THROW(check_groups(RankLauncher::kMpirun, 2), InputError);
    check_groups(RankLauncher::kMpirun, 1);
    check_groups(RankLauncher::kLocal, 4);
  }
  setenv("PATH", before.c_str(), 1);
  const Environment none({});
  EXPECT_THROW(check_groups(RankLauncher::kSrun, 2), InputError);
}

// The ranks of all groups divide a machine's cores and GPUs among them.
TEST(MachineRanks, CountThoseOfOtherGroups) {
  {
    const Environment third(std::map<std::string, std::string>{{kMachineRanksVariable, "4/6"}});
    run_thread_worlds(2, [](World& world) {
      EXPECT_EQ(world.local_rank(), 4 + world.rank());
      EXPECT_EQ(world.local_size(), 6);
      EXPECT_EQ(pin_rank(world, 0), std::max(1, available_cores() / 6));
    });
  }
  for (const char* odd : {"4", "6/6", "-1/2", "a/b", "1/2/3", "1/99999999"}) {
    const Environment given(std::map<std::string, std::string>{{kMachineRanksVariable, odd}});
    EXPECT_THROW(machine_ranks_from_environment(), InputError) << odd;
  }
}

TEST(RankCommands, ReplaceVariables) {
  const Environment given({{"RANK", "7"}, {"WORLD_SIZE", "9"}});
  const std::vector<std::string> variables = environment_with({{"RANK", "1"}, {"NEW", "a=b"}});
  const auto count = [&](const char* one) {
    return std::count(variables.begin(), variables.end(), one);
  };
  EXPECT_EQ(count("RANK=7"), 0);
  EXPECT_EQ(count("RANK=1"), 1);
  EXPECT_EQ(count("WORLD_SIZE=9"), 1);
  EXPECT_EQ(count("NEW=a=b"), 1);
}

TEST(PinRank, SharesTheCores) {
  run_thread_worlds(2, [](World& world) {
    const int threads = pin_rank(world, 0);
    EXPECT_GE(threads, 1);
    EXPECT_EQ(pin_rank(world, 3), 3);
  });
}

}  // namespace
}  // namespace trireme::test_launch
