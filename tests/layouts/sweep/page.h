// docs/reference/layouts.md from what a sweep found.
#pragma once

#include <limits>
#include <optional>
#include <ostream>

#include "tests/layouts/layout_run.h"

namespace trireme::test {

struct CaseReport {
  LayoutCase layout;
  std::optional<LayoutError> error = {};  // from one rank; none: the run did not end
  // Of the reference's routers; infinite without experts, or where there was none.
  double margin = std::numeric_limits<double>::infinity();
  std::string problem = {};  // empty: as it must be
};

struct SweepReport {
  size_t combinations = 0;  // of the whole product, in float64
  int most = 0;             // ranks
  uint64_t seed = 0;
  std::string commit, command;  // of the source; what made the page
  std::vector<CaseReport> cases;
};

void write_page(const SweepReport& report, std::ostream& page);

}  // namespace trireme::test
