// Drawings of a timeline, as text for a terminal and as SVG.
#pragma once

#include "parallel/pipeline/simulate.h"

namespace trireme {

struct TimelineTextOptions {
  int width = 80;       // columns; at least 40 are used
  bool colour = false;  // ANSI colours instead of letters alone
};

// One row per rank, in as many bands as the width requires:
//   rank 0  F0F1F2F3....B0--F4B1--
// then a legend. Every cell begins with F, B, I or W (lower case: odd chunks) and the last digits
// of the micro-batch; - continues the cell, dots are idle.
std::string timeline_text(const Schedule& schedule, const StageTimes& times,
                          const Timeline& timeline, const TimelineTextOptions& options);

// Table with a row per rank: busy, idle (also as a share of the time), own idle
// (Timeline::Rank::idle_inside), peak in flight; then the bubble of the whole schedule.
std::string timeline_table(const Schedule& schedule, const StageTimes& times,
                           const Timeline& timeline);

std::string timeline_svg(const Schedule& schedule, const StageTimes& times,
                         const Timeline& timeline);

}  // namespace trireme
