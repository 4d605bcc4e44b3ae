#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "engine/core/error.h"
#include "engine/io/atomic_file.h"
#include "engine/observe/metrics.h"
#include "tests/support/scratch_directory.h"
#include "tests/training/report/run_case.h"
#include "training/report/report.h"

namespace trireme::test_report {
namespace {

using test::write_run;

TEST(Report, SummaryIsWhatTheRecordsSay) {
  const test::ScratchDirectory dir;
  write_run(dir / "run", 40);
  const RunSummary s = summarize(read_run(dir / "run"));
  EXPECT_EQ(s.model, "gpt2, 3 layers, hidden 48, 4 heads");
  EXPECT_EQ(s.batch, "8 x 16");
  EXPECT_EQ(s.steps, 40);
  EXPECT_EQ(s.planned_steps, 90);
  EXPECT_EQ(s.tokens, 4000);
  EXPECT_EQ(s.tokens_per_second, 1001);
  ASSERT_EQ(s.validation.size(), 1u);
  EXPECT_EQ(s.validation[0].name, "");
  EXPECT_EQ(s.validation[0].best, 1.5);
  EXPECT_EQ(s.validation[0].best_step, 20);
  EXPECT_EQ(s.validation[0].last, 3.0);
  EXPECT_FALSE(s.mfu.has_value());
  // Mean of all 40 steps (fewer than 50) without the one that was not finite.
  EXPECT_NEAR(s.loss, (4.0 * 40 - 2.0 * 41 / 2 - 3.75) / 39, 1e-12);
}

TEST(Report, WritesAPageAndPictures) {
  const test::ScratchDirectory dir;
  write_run(dir / "a/run", 400);
  write_run(dir / "b/run", 30, /*with_config=*/false);
  const auto runs = read_runs({dir / "a/run/", dir / "b/run/metrics.jsonl"});
  EXPECT_EQ(runs[0].name, "run");
  EXPECT_EQ(runs[1].name, "run (2)");
  const ReportFiles files = write_report(runs, dir / "out/report.html", ReportAxis::kTokens);
  ASSERT_EQ(files.pictures.size(), 2u);
  EXPECT_EQ(files.pictures[0], dir / "out/report-loss.svg");
  for (const std::string& picture : files.pictures) {
    EXPECT_NE(read_small_file(picture).find("run (2)"), std::string::npos);
    EXPECT_EQ(read_small_file(picture).find("nan"), std::string::npos);
  }
  const std::string page = read_small_file(files.page);
  EXPECT_NE(page.find("gpt2, 3 layers"), std::string::npos);
  EXPECT_NE(page.find("<td>400</td>"), std::string::npos);
  // A missing value in the charts' data is null; the library's own code before it may contain NaN.
  const size_t data = std::min(page.find("const charts"), page.size());
  EXPECT_EQ(page.find("NaN", data), std::string::npos);
  // Self-contained: the page loads nothing.
  for (const char* loads : {"src=\"http", "href=\"http", "<link", "@import", "fetch("}) {
    EXPECT_EQ(page.find(loads), std::string::npos) << loads;
  }
}

TEST(Report, EveryNamedValidationSetHasACurveAndANumber) {
  const test::ScratchDirectory dir;
  make_directories(dir / "run");
  {
    MetricsFile file(dir / "run/metrics.jsonl");
    for (int step = 1; step <= 6; ++step) {
      StepMetrics m;
      m.step = step;
      m.loss = 3;
      if (step % 2 == 0) m.validation_losses = {{"wiki", 6.0 - step}, {"code", 1.0 + step}};
      file.write(m);
    }
  }
  const auto runs = read_runs({dir / "run"});
  const RunSummary s = summarize(runs[0]);
  ASSERT_EQ(s.validation.size(), 2u);
  EXPECT_EQ(s.validation[0].name, "wiki");
  EXPECT_EQ(s.validation[0].best, 0.0);
  EXPECT_EQ(s.validation[0].best_step, 6);
  EXPECT_EQ(s.validation[1].name, "code");
  EXPECT_EQ(s.validation[1].best, 3.0);
  EXPECT_EQ(s.validation[1].best_step, 2);
  EXPECT_EQ(s.validation[1].last, 7.0);
  const ReportFiles files = write_report(runs, dir / "report.html");
  const std::string picture = read_small_file(files.pictures[0]);
  for (const char* curve : {"run, validation wiki", "run, validation code"})
    EXPECT_NE(picture.find(curve), std::string::npos) << curve;
  const std::string page = read_small_file(files.page);
  EXPECT_NE(page.find("wiki 0.0000, code 7.0000"), std::string::npos);
  EXPECT_NE(page.find("wiki 0.0000 at 6, code 3.0000 at 2"), std::string::npos);
  const std::string shown = report_text(runs, 70);
  EXPECT_NE(shown.find("best validation loss 3 at step 2 on code"), std::string::npos) << shown;
}

TEST(Report, TextForATerminal) {
  const test::ScratchDirectory dir;
  write_run(dir / "run", 40);
  const std::string shown = report_text(read_runs({dir / "run"}), 70);
  EXPECT_NE(shown.find("run: 40 steps, 4.00k tokens"), std::string::npos) << shown;
  EXPECT_NE(shown.find("best validation loss 1.5 at step 20"), std::string::npos) << shown;
}

TEST(Report, WhatCannotBeReadIsNamed) {
  const test::ScratchDirectory dir;
  EXPECT_THROW(read_runs({}), InputError);
  EXPECT_THROW(read_run(dir / "absent"), InputError);
  EXPECT_THROW(read_run(dir.path()), InputError);
  write_file_atomically(dir / "metrics.jsonl", "");
  EXPECT_THROW(read_run(dir.path()), InputError);
  write_file_atomically(dir / "metrics.jsonl", "{\"step\":1}\n");
  EXPECT_EQ(read_run(dir.path()).loss.size(), 1u);
  write_file_atomically(dir / "resolved_config.json", "[1, {");
  const RunSummary s = summarize(read_run(dir.path()));
  EXPECT_EQ(s.model, "");
  EXPECT_TRUE(std::isnan(s.loss));
  EXPECT_NO_THROW(write_report(read_runs({dir.path()}), dir / "r.html"));
}

}  // namespace
}  // namespace trireme::test_report
