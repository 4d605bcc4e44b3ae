#include <gtest/gtest.h>

#include <cmath>

#include "engine/observe/console_line.h"
#include "tests/engine/observe/sample_metrics.h"

namespace trireme::test_console_line {
namespace {

using test::sample_metrics;

TEST(ConsoleLine, IsMegatronsFieldForField) {
  const std::string line = console_line(sample_metrics());
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
  StepMetrics m = sample_metrics();
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

TEST(ConsoleLine, AStepWithARoundHasItsBytesAndTime) {
  StepMetrics m = sample_metrics();
  m.round = {.ms = 12.04, .sent_bytes = 3250586};
  EXPECT_TRUE(console_line(m).ends_with(" | MFU: 45.7% | outer round: 3.10 MiB sent, 12.0 ms |"));
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

}  // namespace
}  // namespace trireme::test_console_line
