#include <gtest/gtest.h>

#include "engine/observe/progress.h"
#include "tests/engine/observe/sample_metrics.h"

namespace trireme::test_progress {
namespace {

using test::sample_metrics;

TEST(Progress, FitsEveryWidthAndKeepsWhatMatters) {
  for (int columns = 0; columns < 200; ++columns) {
    const std::string line = progress_line("pretrain", sample_metrics(), 83, columns);
    EXPECT_LE(line.size(), static_cast<size_t>(columns));
    EXPECT_EQ(line.find("42%") != std::string::npos, columns >= 4) << columns << line;
  }
  EXPECT_EQ(progress_line("pretrain", sample_metrics(), 83, 98),
            "pretrain   42%  [#############.................]  840/2000  loss 1.9312  12.3k tok/s  "
            "ETA 1:23");
  EXPECT_EQ(progress_line("pretrain", sample_metrics(), 83, 20), " 42%  ETA 1:23");
  StepMetrics beyond = sample_metrics();
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

}  // namespace
}  // namespace trireme::test_progress
