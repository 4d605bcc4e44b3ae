#include <gtest/gtest.h>

#include "engine/core/error.h"
#include "parallel/pipeline/make_schedule.h"
#include "parallel/pipeline/simulate.h"
#include "parallel/pipeline/timeline.h"

namespace trireme::test_timeline_text {
namespace {

TEST(TimelineText, OneRowPerRank) {
  const Schedule schedule = make_schedule(ScheduleKind::k1F1B, 2, 1, 2);
  const StageTimes times{1, 1, 1, 0};
  const Timeline timeline = simulate(schedule, times);
  const std::string text = timeline_text(schedule, times, timeline, {45, false});
  EXPECT_EQ(text,
            "rank 0   F0--F1--........B0------....B1------\n"
            "rank 1   ....F0--B0------F1--B1------........\n"
            "         0                                  9\n"
            "         F forward   B backward   . idle\n");
}

TEST(TimelineText, LongOnesFitTheirWidth) {
  for (const int m : {8, 40, 400}) {
    const Schedule schedule = make_schedule(ScheduleKind::kZbH1, 4, 1, m);
    const StageTimes times{1, 1.25, 0.75, 0};
    const Timeline timeline = simulate(schedule, times);
    const std::string text = timeline_text(schedule, times, timeline, {80, false});
    size_t begin = 0, lines = 0;
    for (size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1, ++lines)
      EXPECT_LE(end - begin, 80u);
    EXPECT_LE(lines, 64u);
    EXPECT_NE(timeline_svg(schedule, times, timeline).find("</svg>"), std::string::npos);
  }
}

}  // namespace
}  // namespace trireme::test_timeline_text
