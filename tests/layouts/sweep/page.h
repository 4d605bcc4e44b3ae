// docs/reference/layouts.md, generated from the results of a sweep.
#pragma once

#include <limits>
#include <optional>
#include <ostream>

#include "tests/layouts/layout_run.h"

namespace trireme::test {

struct CaseReport {
  LayoutCase layout;
  std::optional<LayoutError> error = {};  // relative to one rank; absent: the run failed
  // Routing margin of the reference; infinite without experts or without a reference.
  double margin = std::numeric_limits<double>::infinity();
  std::string problem = {};  // empty: passed
};

struct SweepReport {
  size_t combinations = 0;  // in the whole product, in float64
  int most = 0;             // ranks
  uint64_t seed = 0;
  std::string commit, command;  // commit of the source; command that generated the page
  std::vector<CaseReport> cases;
};

void write_page(const SweepReport& report, std::ostream& page);

}  // namespace trireme::test
