// What the supervisor makes of processes that are no ranks: said once, tried no second time before the first success.
#include <gtest/gtest.h>

#include "engine/core/error.h"
#include "serving/distributed/rank_supervisor.h"

namespace trireme {
namespace {

TEST(RankSupervisor, SaysHowTheFirstStartFailed) {
  RankSupervisor ranks({.ranks = 2, .command = {"/bin/sh", "-c", "exit 2"}});
  try {
    ranks.wait_until_ready();
    FAIL() << "they are ready";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kBadInput);
    EXPECT_NE(std::string(error.what()).find("exit code 2"), std::string::npos) << error.what();
  }
  EXPECT_EQ(ranks.counts().starts, 1);
  EXPECT_FALSE(ranks.counts().ready);
  StepPlan plan;
  plan.number = 1;
  EXPECT_THROW(ranks.execute(plan), Error);
}

// Ranks that never come are not waited for when the end is asked for.
TEST(RankSupervisor, EndsWhileItsRanksStart) {
  const auto begin = std::chrono::steady_clock::now();
  { RankSupervisor ranks({.ranks = 2, .command = {"/bin/sleep", "60"}}); }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
}

}  // namespace
}  // namespace trireme
