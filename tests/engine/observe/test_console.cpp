#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "engine/io/atomic_file.h"
#include "engine/observe/console.h"
#include "engine/observe/console_line.h"
#include "engine/observe/log.h"
#include "engine/observe/progress.h"
#include "tests/support/scratch_directory.h"

namespace trireme::test_console {
namespace {

StepMetrics sample() {
  StepMetrics m;
  m.step = 840;
  m.train_steps = 2000;
  m.consumed_samples = 10080;
  m.global_batch_size = 12;
  m.step_ms = 62.4499;
  m.model_tflops = 0.1234;
  m.lr = 9.5e-4;
  m.loss = 1.93125;
  m.grad_norm = 0.61249;
  m.tokens_per_second = 12297.6;
  m.mfu = 0.4567;
  return m;
}

TEST(ConsoleLine, IsMegatronsFieldForField) {
  const std::string line = console_line(sample());
  const std::string want =
      "iteration      840/    2000 | consumed samples:        10080 | "
      "elapsed time per iteration (ms): 62.4 | throughput per GPU (TFLOP/s/GPU): 0.1 | "
      "learning rate: 9.500000E-04 | global batch size:    12 | lm loss: 1.931250E+00 | "
      "loss scale: 1.0 | grad norm: 0.612 | number of skipped iterations:   0 | "
      "number of nan iterations:   0 | tokens/s: 12298 | MFU: 45.7% |";
  ASSERT_GT(line.size(), 30u);
  const testing::Matcher<const std::string&> time =
      testing::MatchesRegex(R"(\[[0-9]{4}(-[0-9]{2}){2} ([0-9]{2}:){2}[0-9]{2}\.[0-9]{6}\] )");
  EXPECT_TRUE(time.Matches(line.substr(0, 29))) << line;
  EXPECT_EQ(line.substr(29), want);
}

TEST(ConsoleLine, ASkippedStepHasNoLossAndAnUnknownPeakNoMfu) {
  StepMetrics m = sample();
  m.skipped = true;
  m.skipped_iterations = 3;
  m.loss = std::nan("");
  m.mfu.reset();
  const std::string line = console_line(m);
  EXPECT_EQ(line.find("lm loss"), std::string::npos);
  EXPECT_EQ(line.find("nan |"), std::string::npos);
  EXPECT_EQ(line.find("MFU"), std::string::npos);
  EXPECT_NE(line.find("skipped iterations:   3 |"), std::string::npos);
}

TEST(ConsoleLine, Validation) {
  EXPECT_EQ(validation_line(500, 1.5),
            "validation loss at iteration 500 | lm loss value: 1.500000E+00 | "
            "lm loss PPL: 4.481689E+00 |");
  EXPECT_EQ(validation_line(500, 1.5, "test"),
            "validation loss at iteration 500 on test set | lm loss value: 1.500000E+00 | "
            "lm loss PPL: 4.481689E+00 |");
  EXPECT_EQ(validation_line(500, 1.5, "", "160 of 549"),
            "validation loss at iteration 500 | lm loss value: 1.500000E+00 | "
            "lm loss PPL: 4.481689E+00 | samples: 160 of 549 |");
}

TEST(Progress, FitsEveryWidthAndKeepsWhatMatters) {
  for (int columns = 0; columns < 200; ++columns) {
    const std::string line = progress_line("pretrain", sample(), 83, columns);
    EXPECT_LE(line.size(), static_cast<size_t>(columns));
    EXPECT_EQ(line.find("42%") != std::string::npos, columns >= 4) << columns << line;
  }
  EXPECT_EQ(progress_line("pretrain", sample(), 83, 98),
            "pretrain   42%  [#############.................]  840/2000  loss 1.9312  12.3k tok/s  "
            "ETA 1:23");
  EXPECT_EQ(progress_line("pretrain", sample(), 83, 20), " 42%  ETA 1:23");
  StepMetrics beyond = sample();
  beyond.step = 5000;
  EXPECT_NE(progress_line("x", beyond, 0, 120).find("100%"), std::string::npos);
  beyond.train_steps = 0;
  EXPECT_NE(progress_line("x", beyond, 0, 120).find("  0%"), std::string::npos);
}

TEST(Progress, NumbersForPeople) {
  EXPECT_EQ(format_duration(0), "0:00");
  EXPECT_EQ(format_duration(59.6), "1:00");
  EXPECT_EQ(format_duration(3723), "1:02:03");
  EXPECT_EQ(format_duration(2 * 86400 + 3 * 3600 + 12 * 60), "2d 03:12");
  EXPECT_EQ(format_duration(-1), "--:--");
  EXPECT_EQ(format_duration(INFINITY), "--:--");
  EXPECT_EQ(format_count(950), "950");
  EXPECT_EQ(format_count(999.6), "1.00k");
  EXPECT_EQ(format_count(12345), "12.3k");
  EXPECT_EQ(format_count(124'000'000), "124M");
  EXPECT_EQ(format_bytes(1536), "1.50 KiB");
  EXPECT_EQ(format_bytes(int64_t{5} << 40), "5.00 TiB");
}

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
}  // namespace trireme::test_console
