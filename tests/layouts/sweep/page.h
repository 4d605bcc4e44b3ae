// docs/layouts.md from what a sweep found.
#pragma once

#include <ostream>

#include "tests/layouts/layout_run.h"

namespace trireme::test {

struct CaseReport {
  LayoutCase layout;
  LayoutError error;    // from one rank
  double margin = 0;    // of the reference's routers; infinite without experts
  std::string problem;  // empty: as it must be
};

struct SweepReport {
  size_t combinations = 0;  // of the whole product, in float64
  int most = 0;             // ranks
  uint64_t seed = 0;
  std::string commit;
  std::vector<CaseReport> cases;
};

void write_page(const SweepReport& report, std::ostream& page);

}  // namespace trireme::test
