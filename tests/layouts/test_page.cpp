// Page of a sweep: failed cases have no numbers, and the page states the commit and the command.
#include <gtest/gtest.h>

#include <sstream>

#include "tests/layouts/sweep/page.h"

namespace trireme::test::test_page {
namespace {

CaseReport report_of(DType dtype, int zero, const std::optional<LayoutError>& error) {
  CaseReport report;
  report.layout.dtype = dtype;
  report.layout.zero = zero;
  report.error = error;
  return report;
}

std::string page_of(const std::vector<CaseReport>& cases) {
  const SweepReport report{60228, 8, 1, "abc", "scripts/test_layouts.sh --publish", cases};
  std::ostringstream page;
  write_page(report, page);
  return page.str();
}

TEST(SweepPage, OnlyWhatWasComparedHasNumbers) {
  LayoutError error;
  error.loss = 0.5;
  const std::string page =
      page_of({report_of(DType::kF64, 1, error), report_of(DType::kBF16, 2, error),
               report_of(DType::kF64, 3, std::nullopt)});
  EXPECT_NE(page.find("| ZeRO stage | 1 | 1 | 0 | 5.0e-01 | 0.0e+00 |"), std::string::npos) << page;
  EXPECT_NE(page.find("| ZeRO stage | 2 | 1 | 0 | - | - | - | - |"), std::string::npos) << page;
  EXPECT_NE(page.find("| ZeRO stage | 3 | 1 | 0 | - | - | - | - |"), std::string::npos) << page;
  EXPECT_NE(page.find("zero3, llama, float64 | - | - | - | - |"), std::string::npos) << page;
}

TEST(SweepPage, SaysHowMuchRanAndWhatMadeIt) {
  const std::string page =
      page_of({report_of(DType::kF64, 0, LayoutError()), report_of(DType::kF32, 0, LayoutError())});
  EXPECT_NE(page.find("Of 60228 combinations for up to 8 ranks 1 ran in float64, and 1, "),
            std::string::npos)
      << page;
  EXPECT_NE(page.find("`scripts/test_layouts.sh --publish`"), std::string::npos) << page;
}

// A routing margin that was never measured does not count as the smallest.
TEST(SweepPage, CaseThatEndedEarlyHasNoMargin) {
  CaseReport measured = report_of(DType::kF64, 0, LayoutError());
  measured.margin = 0.25;
  const std::string page = page_of({measured, report_of(DType::kF64, 1, std::nullopt)});
  EXPECT_NE(page.find("2.5e-01 in float64"), std::string::npos) << page;
}

}  // namespace
}  // namespace trireme::test::test_page
