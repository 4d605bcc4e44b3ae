#include <gtest/gtest.h>

#include "engine/io/atomic_file.h"
#include "tests/support/scratch_directory.h"
#include "tests/training/report/run_case.h"
#include "training/report/report.h"
#include "training/report/report_page.h"

namespace trireme::test_report_page {
namespace {

using test::write_run;

TEST(Report, APageWithoutDygraphsShowsTheStaticPictures) {
  const test::ScratchDirectory dir;
  write_run(dir / "run", 20);
  const auto runs = read_runs({dir / "run"});
  Plot plot{"Loss", "step", "nats", false, false, 400, 200, {{"run", {1, 2}, {2, 1}}}};
  const std::string page = report_page(runs, {{"loss", plot}}, "", "");
  EXPECT_NE(page.find("<svg"), std::string::npos);
  EXPECT_EQ(page.find("<script"), std::string::npos);
}

TEST(Report, NamesAndConfigsCannotBreakOutOfThePage) {
  const test::ScratchDirectory dir;
  const std::string evil = "<script>alert(1)<&\"'";
  write_run(dir / evil, 20);
  write_file_atomically(dir / (evil + "/resolved_config.json"),
                        R"({"model": {"model_type": "</pre><script>alert(2)</script>"}})");
  const auto runs = read_runs({dir / evil});
  Plot plot{"Loss", "step", "nats", false, false, 400, 200, {{evil, {1, 2}, {2, 1}}}};
  const std::string page = report_page(runs, {{"loss", plot}}, "/* library */", "");
  EXPECT_EQ(page.find("<script>alert"), std::string::npos);
  EXPECT_EQ(page.find("</pre><script>"), std::string::npos);
}

}  // namespace
}  // namespace trireme::test_report_page
