#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/core/error.h"
#include "engine/io/atomic_file.h"
#include "engine/observe/metrics.h"
#include "tests/engine/io/small_disk.h"
#include "tests/support/scratch_directory.h"

namespace trireme::test_metrics {
namespace {

using test::ScratchDirectory;

StepMetrics metrics_of(int64_t step) {
  StepMetrics m;
  m.step = step;
  m.loss = 1.0 / 3.0 * static_cast<double>(step);
  m.lr = 0.1;
  m.flops_formula = "6N+12LCT";
  if (step % 2 == 0) m.validation_loss = 2.5;
  if (step % 2 == 0) m.validation_losses = {{"wiki", 1.5}, {"code", NAN}};
  m.extra = {{"gemm_share", 0.25}};
  return m;
}

TEST(Metrics, NumbersReadBackToTheSameDouble) {
  const ScratchDirectory dir;
  {
    MetricsFile file(dir / "metrics.jsonl");
    for (int64_t step = 1; step <= 3; ++step) file.write(metrics_of(step));
  }
  const auto records = read_metrics(dir / "metrics.jsonl");
  ASSERT_EQ(records.size(), 3u);
  for (int64_t step = 1; step <= 3; ++step) {
    const auto& record = records[static_cast<size_t>(step - 1)];
    EXPECT_EQ(record["step"], step);
    EXPECT_EQ(record["loss"].get<double>(), metrics_of(step).loss);
    EXPECT_EQ(record.contains("validation_loss"), step == 2);
    EXPECT_EQ(record.value("validation_losses", nlohmann::ordered_json()).dump(),
              step == 2 ? R"({"wiki":1.5,"code":null})" : "null");
    EXPECT_TRUE(record["mfu"].is_null());
    EXPECT_EQ(record["gemm_share"], 0.25);
  }
}

TEST(Metrics, NonFiniteNumbersAreNullAndTheLineStaysJson) {
  StepMetrics m = metrics_of(1);
  m.loss = std::nan("");
  m.grad_norm = INFINITY;
  const std::string line = step_metrics_to_json(m).dump();
  EXPECT_NE(line.find("\"loss\":null"), std::string::npos) << line;
  EXPECT_NE(line.find("\"grad_norm\":null"), std::string::npos) << line;
}

TEST(Metrics, EachLineIsInTheFileWhenWriteReturns) {
  const ScratchDirectory dir;
  MetricsFile file(dir / "m");
  file.write(metrics_of(1));
  EXPECT_EQ(read_metrics(dir / "m").size(), 1u);
}

TEST(Metrics, ResumeGivesTheFileOfAnUndisturbedRun) {
  const ScratchDirectory dir;
  {
    MetricsFile file(dir / "undisturbed");
    for (int64_t step = 1; step <= 8; ++step) file.write(metrics_of(step));
  }
  const std::string want = read_small_file(dir / "undisturbed");
  // Killed at any byte; the last checkpoint is from step 3 or earlier.
  for (size_t bytes = 0; bytes <= want.size(); bytes += 17) {
    const std::string path = dir / "killed";
    std::ofstream(path, std::ios::trunc) << want.substr(0, bytes);
    const auto whole = static_cast<int64_t>(read_metrics(path).size());
    const int64_t resume = std::min<int64_t>(whole, 3);
    {
      MetricsFile file(path, resume);
      for (int64_t step = resume + 1; step <= 8; ++step) file.write(metrics_of(step));
    }
    EXPECT_EQ(read_small_file(path), want) << "killed after byte " << bytes;
  }
}

TEST(Metrics, AFreshRunReplacesAndAnAbsentFileResumes) {
  const ScratchDirectory dir;
  MetricsFile(dir / "m").write(metrics_of(5));
  MetricsFile(dir / "m").write(metrics_of(6));
  EXPECT_EQ(read_metrics(dir / "m").size(), 1u);
  MetricsFile(dir / "new", 10).write(metrics_of(11));
  EXPECT_EQ(read_metrics(dir / "new").size(), 1u);
}

TEST(Metrics, AFullDiskCostsRecordsAndNothingElse) {
  const ScratchDirectory dir;
  const test::SmallDisk disk(dir / "disk", 64 << 10);
  if (!disk.mounted()) GTEST_SKIP() << "mounting a tmpfs needs root";
  const std::string path = disk / "metrics.jsonl";
  MetricsFile file(path);
  ::testing::internal::CaptureStderr();
  for (int64_t step = 1; step <= 1000; ++step) file.write(metrics_of(step));
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("No space left"), std::string::npos) << said;
  EXPECT_EQ(said.find("warning"), said.rfind("warning")) << said;  // once
  const std::string whole = read_small_file(path);
  EXPECT_EQ(whole.back(), '\n');
  const auto records = read_metrics(path);
  ASSERT_GT(records.size(), 10u);
  ASSERT_LT(records.size(), 1000u);
  for (size_t i = 0; i < records.size(); ++i) EXPECT_EQ(records[i]["step"], i + 1);
}

TEST(Metrics, ADamagedLineInTheMiddleIsNamed) {
  const ScratchDirectory dir;
  const std::string path = dir / "m";
  for (const char* bad : {"{\"step\":1}\nhello\n{\"step\":2}\n", "{\"loss\":1}\n{\"step\":2}\n",
                          "{\"step\":\"x\"}\n{\"step\":2}\n", "[]\n{\"step\":2}\n"}) {
    write_file_atomically(path, bad);
    EXPECT_THROW(read_metrics(path), InputError) << bad;
    EXPECT_THROW(MetricsFile(path, 5), InputError) << bad;
    EXPECT_EQ(read_small_file(path), bad);  // a refusal truncates nothing
  }
  EXPECT_THROW(read_metrics(dir / "absent"), InputError);
  EXPECT_THROW(MetricsFile(dir / "no/such/dir"), InputError);
}

}  // namespace
}  // namespace trireme::test_metrics
