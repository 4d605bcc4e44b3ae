// Conditions under which a rank counts as lost.
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <thread>

#include "serving/distributed/rank_processes.h"
#include "serving/distributed/rank_watch.h"

namespace trireme::test_rank_watch {
namespace {

using std::chrono::milliseconds;

constexpr SilenceLimits kLimits{.stopped = milliseconds(300), .silent = milliseconds(2000)};

const std::vector<RankCommand> kSleep = {{.words = {"/bin/sleep", "600"}, .variables = {}}};

struct Watched {
  explicit Watched(bool here)
      : now(RankWatch::Clock::now()), watch({getpid(), getpid()}, here, kLimits, now) {}
  // Polls every 50 ms, with beats of both ranks or only of the first.
  std::string after(int ms, bool second) {
    for (int t = 0; t < ms; t += 50) {
      now += milliseconds(50);
      watch.received(0);
      if (second) watch.received(1);
      if (std::string why = watch.look(now); !why.empty()) return why;
    }
    return {};
  }
  RankWatch::Clock::time_point now;
  RankWatch watch;
};

TEST(RankWatch, FindsWhoIsSilent) {
  for (const bool here : {false, true}) {
    Watched ranks(here);
    EXPECT_EQ(ranks.after(10'000, true), "");
    EXPECT_EQ(ranks.after(1900, false), "");
    EXPECT_EQ(ranks.after(50, true), "");
    EXPECT_EQ(ranks.after(1900, false), "");
    EXPECT_NE(ranks.after(200, false).find("rank 1"), std::string::npos);
  }
}

// The observer itself did not run: no rank was silent for that long.
TEST(RankWatch, CountsOnlyTimeInWhichItRan) {
  Watched ranks(false);
  ranks.now += milliseconds(60'000);
  EXPECT_EQ(ranks.watch.look(ranks.now), "");
  EXPECT_EQ(ranks.after(1500, false), "");
}

TEST(RankWatch, SeesAStoppedProcessAtOnce) {
  RankProcesses sleeper(kSleep);
  EXPECT_EQ(sleeper.ended(), "");
  const int process = sleeper.pids().front();
  auto now = RankWatch::Clock::now();
  RankWatch watch({process}, true, kLimits, now);
  EXPECT_EQ(watch.look(now += milliseconds(200)), "");
  EXPECT_EQ(watch.look(now += milliseconds(200)), "");  // silent, but running
  kill(process, SIGSTOP);
  std::string why;
  for (int i = 0; i < 12'000 && why.empty(); ++i) {
    why = watch.look(now);
    std::this_thread::sleep_for(milliseconds(5));
  }
  EXPECT_NE(why.find("is stopped"), std::string::npos) << why;
  sleeper.kill();  // running or stopped
  EXPECT_EQ(kill(process, 0), -1);
}

TEST(StepDeadline, IsTenTimesWhatSuchStepsTake) {
  using Seconds = std::chrono::duration<double>;
  StepDeadline deadline;
  EXPECT_EQ(deadline.allowed(1).count(), 60);
  deadline.report_step_seconds(1, Seconds(0.001));
  EXPECT_EQ(deadline.allowed(1).count(), 30);
  EXPECT_EQ(deadline.allowed(500).count(), 60);
  deadline.report_step_seconds(500, Seconds(5));
  EXPECT_DOUBLE_EQ(deadline.allowed(512).count(), 50);
  deadline.report_step_seconds(512, Seconds(3));
  EXPECT_DOUBLE_EQ(deadline.allowed(400).count(), 48);
  EXPECT_EQ(deadline.allowed(0).count(), 30);
  EXPECT_EQ(StepDeadline(Seconds(90)).allowed(1).count(), 90);
}

}  // namespace
}  // namespace trireme::test_rank_watch
