#include <gtest/gtest.h>

#include <fstream>
#include <map>

#include "engine/core/error.h"
#include "parallel/comm/launcher.h"
#include "parallel/comm/launcher_environment.h"
#include "parallel/launch.h"
#include "tests/parallel/environment.h"
#include "tests/support/scratch_directory.h"

namespace trireme::test_launcher {
namespace {

using test::Environment;

TEST(Launcher, IsRecognizedByItsVariables) {
  {
    const Environment none({});
    EXPECT_EQ(detect_launcher().kind, Launcher::kNone);
    EXPECT_EQ(detect_launcher().ranks, 1);
  }
  {
    const Environment mpirun({{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_RANK", "3"}});
    const LauncherInfo info = detect_launcher();
    EXPECT_EQ(info.kind, Launcher::kMpi);
    EXPECT_EQ(info.name, "mpirun");
    EXPECT_EQ(info.ranks, 4);
    EXPECT_EQ(info.rank, 3);
  }
  {
    const Environment srun({{"SLURM_STEP_NUM_TASKS", "8"}, {"SLURM_PROCID", "5"}});
    EXPECT_EQ(detect_launcher().name, "srun");
  }
  {
    const Environment torchrun({{"WORLD_SIZE", "2"},
                                {"RANK", "1"},
                                {"MASTER_ADDR", "localhost"},
                                {"MASTER_PORT", "29500"}});
    EXPECT_EQ(detect_launcher().kind, Launcher::kTcp);
    EXPECT_EQ(detect_launcher().rank, 1);
  }
  {
    const Environment alone({{"WORLD_SIZE", "1"}, {"RANK", "0"}, {"LOCAL_RANK", "0"}});
    EXPECT_EQ(detect_launcher().kind, Launcher::kNone) << "one rank has nobody to meet";
  }
  const Environment address({{"MASTER_ADDR", "localhost"}, {"MASTER_PORT", "29500"}});
  EXPECT_EQ(detect_launcher().kind, Launcher::kNone) << "an address makes no rank";
}

std::string launcher_error() {
  try {
    detect_launcher();
  } catch (const InputError& error) {
    return error.what();
  }
  return "no error";
}

using Variables = std::map<std::string, std::string>;

TEST(Launcher, NonsenseInItsVariablesIsAnInputError) {
  const std::vector<std::pair<Variables, std::string>> cases = {
      {{{"OMPI_COMM_WORLD_SIZE", "four"}, {"OMPI_COMM_WORLD_RANK", "0"}},
       "OMPI_COMM_WORLD_SIZE=\"four\" is not a number"},
      {{{"OMPI_COMM_WORLD_SIZE", "2"}}, "OMPI_COMM_WORLD_RANK=\"\" is not a number"},
      {{{"OMPI_COMM_WORLD_RANK", "1"}}, "OMPI_COMM_WORLD_SIZE=\"\" is not a number"},
      {{{"OMPI_COMM_WORLD_SIZE", "2"}, {"OMPI_COMM_WORLD_RANK", "2"}},
       "OMPI_COMM_WORLD_RANK=2 and OMPI_COMM_WORLD_SIZE=2: ranks are numbered from 0 to 1"},
      {{{"PMI_SIZE", "2"}, {"PMI_RANK", "-1"}}, "PMI_RANK=\"-1\" is not a number"},
      {{{"RANK", "1"}}, "RANK=1 is set without WORLD_SIZE"},
      {{{"WORLD_SIZE", "4"}, {"MASTER_ADDR", "a"}}, "WORLD_SIZE=4 is set without RANK"},
      {{{"WORLD_SIZE", "2"}, {"RANK", "2"}, {"MASTER_ADDR", "a"}}, "RANK=2 and WORLD_SIZE=2"},
      {{{"WORLD_SIZE", "2"}, {"RANK", "0x1"}, {"MASTER_ADDR", "a"}},
       "RANK=\"0x1\" is not a number"},
      {{{"WORLD_SIZE", "0"}, {"RANK", "0"}, {"MASTER_ADDR", "a"}}, "WORLD_SIZE=\"0\" is not"},
      {{{"WORLD_SIZE", "2"}, {"RANK", "0"}}, "MASTER_ADDR, where rank 0 listens, is not set"},
      {{{"WORLD_SIZE", "2"}, {"RANK", "0"}, {"MASTER_ADDR", "a"}}, "MASTER_PORT=\"\" is not"},
      {{{"WORLD_SIZE", "2"}, {"RANK", "0"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "65536"}},
       "MASTER_PORT=\"65536\" is not a number from 1 to 65535"},
  };
  for (const auto& one : cases) {
    const Environment given(one.first);
    EXPECT_NE(launcher_error().find(one.second), std::string::npos) << one.second << "\n"
                                                                    << launcher_error();
  }
}

// It would start the next one, recursively and without end.
TEST(Launcher, AnMpirunThatIsNotOpenMpisIsAnInputError) {
  const Environment rank(Variables{{"TRIREME_MPIRUN", "/opt/other/mpirun"}});
  try {
    must_start_ranks(2);
    FAIL() << "it starts another mpirun";
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find("/opt/other/mpirun"), std::string::npos);
  }
}

TEST(Launcher, RanksMustAgreeWithIt) {
  const Environment mpirun({{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_RANK", "0"}});
  ensure_ranks(0, 0, nullptr);
  ensure_ranks(4, 0, nullptr);
  EXPECT_THROW(ensure_ranks(2, 0, nullptr), InputError);
  EXPECT_THROW(ensure_ranks(-1, 0, nullptr), InputError);
}

TEST(Launcher, HandsTheConsoleDown) {
  const Environment none({});
  EXPECT_EQ(handed_down_console().columns, 0);
  for (const ConsoleTarget& target :
       {ConsoleTarget{120, true}, ConsoleTarget{80, false}, ConsoleTarget{}}) {
    hand_down_console(target);
    EXPECT_EQ(handed_down_console().columns, target.columns);
    EXPECT_EQ(handed_down_console().shared, target.shared);
  }
}

TEST(Launcher, OneRankNeedsNone) {
  const Environment none({});
  ensure_ranks(0, 0, nullptr);
  ensure_ranks(1, 0, nullptr);
  EXPECT_THROW(ensure_ranks(-1, 0, nullptr), InputError);
  const auto world = make_world({});
  EXPECT_EQ(world->size(), 1);
  EXPECT_EQ(world->backend(), "single");
  EXPECT_EQ(world->describe(), "1 rank over single on 1 host, 1 node");
  WorldOptions odd;
  odd.backend = "pigeon";
  EXPECT_THROW(make_world(odd), InputError);
}

TEST(Launcher, ReadsTheSecretOfRanksOverTcp) {
  const Variables ranks{
      {"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}, {"RANK", "0"}, {"WORLD_SIZE", "2"}};
  const auto secret_with = [&](Variables more) {
    more.insert(ranks.begin(), ranks.end());
    const Environment given(more);
    return tcp_options_from_environment(1).secret;
  };
  const test::ScratchDirectory folder;
  const std::string path = folder / "secret";
  std::ofstream(path) << "of a file, long enough\nand no more\n";
  EXPECT_EQ(secret_with({}), "");
  EXPECT_EQ(secret_with({{kCommSecretVariable, "sixteen letters."}}), "sixteen letters.");
  EXPECT_EQ(secret_with({{kCommSecretFileVariable, path}}), "of a file, long enough");
  EXPECT_THROW(secret_with({{kCommSecretVariable, "short"}}), InputError);
  EXPECT_THROW(secret_with({{kCommSecretFileVariable, folder.path()}}), InputError);
  EXPECT_THROW(secret_with({{kCommSecretFileVariable, path + ".none"}}), InputError);
}

}  // namespace
}  // namespace trireme::test_launcher
