// Pictures of a timeline, for a terminal and as SVG.
#pragma once

#include "parallel/pipeline/simulate.h"

namespace trireme {

struct TimelineTextOptions {
  int width = 80;       // columns; at least 40 are used
  bool colour = false;  // ANSI colours instead of letters alone
};

// One row per rank, in as many bands as the width makes necessary:
//   rank 0  F0F1F2F3....B0--F4B1--
// then a legend. Every cell begins with F, B, I or W (small letters: odd chunks) and the last
// digits of the micro-batch; - goes on with it, dots are idle.
std::string timeline_text(const Schedule& schedule, const StageTimes& times,
                          const Timeline& timeline, const TimelineTextOptions& options);

// Per rank: busy, idle, idle without waiting for the others at the end, peak in flight; then the
// bubble of the whole.
std::string timeline_table(const Schedule& schedule, const StageTimes& times,
                           const Timeline& timeline);

std::string timeline_svg(const Schedule& schedule, const StageTimes& times,
                         const Timeline& timeline);

}  // namespace trireme
