#include <gtest/gtest.h>

#include <thread>

#include "engine/core/error.h"
#include "engine/io/atomic_file.h"
#include "engine/observe/log.h"
#include "tests/support/scratch_directory.h"

namespace trireme::test_log {
namespace {

TEST(Log, LinesOfManyThreadsStayWhole) {
  const test::ScratchDirectory dir;
  open_log_file(dir / "train.log");
  ::testing::internal::CaptureStderr();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      for (int i = 0; i < 50; ++i) log_info("thread ", t, " line ", i, " end");
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::string shown = ::testing::internal::GetCapturedStderr();
  close_log_file();
  const std::string kept = read_small_file(dir / "train.log");
  const testing::Matcher<const std::string&> line =
      testing::MatchesRegex(R"(\[[-0-9:. ]{26}\] thread [0-9] line [0-9]+ end)");
  size_t lines = 0;
  std::istringstream in(kept);
  for (std::string text; std::getline(in, text); ++lines) {
    EXPECT_TRUE(line.Matches(text)) << text;
  }
  EXPECT_EQ(lines, 200u);
  EXPECT_EQ(std::count(shown.begin(), shown.end(), '\n'), 200);
}

TEST(Log, LevelsAndRanks) {
  const test::ScratchDirectory dir;
  open_log_file(dir / "train.log");
  ::testing::internal::CaptureStderr();
  ::testing::internal::CaptureStdout();
  log_debug("hidden");
  log_warning("value ", 7);
  log_line("as it is");
  set_log_rank(3);
  log_info("hidden too");
  log_line("hidden as well");
  log_error("broken {}");
  set_log_rank(0);
  close_log_file();
  log_info("after closing");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "warning: value 7\n[rank 3] error: broken {}\nafter closing\n");
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "as it is\n");
  const std::string kept = read_small_file(dir / "train.log");
  EXPECT_NE(kept.find("] warning: value 7\nas it is\n["), std::string::npos) << kept;
  EXPECT_EQ(kept.find("hidden"), std::string::npos) << kept;
  EXPECT_THROW(open_log_file("/proc/no/such"), InputError);
}

}  // namespace
}  // namespace trireme::test_log
