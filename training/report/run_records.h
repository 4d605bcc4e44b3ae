// What a run writes while it runs: metrics.jsonl, the console line, train.log, the progress bar.
// Only rank 0 has one.
#pragma once

#include <optional>
#include <string>

#include "engine/observe/metrics.h"
#include "engine/observe/progress.h"
#include "engine/observe/tensorboard.h"
#include "training/config/run_config.h"

namespace trireme {

std::string metrics_path(const RunConfig& config);

class RunRecords {
 public:
  // Opens the files of config.output_dir; records after `resume_step` are dropped.
  RunRecords(const RunConfig& config, int64_t resume_step);
  ~RunRecords();
  RunRecords(const RunRecords&) = delete;
  RunRecords& operator=(const RunRecords&) = delete;
  void write(const StepMetrics& metrics);

 private:
  int64_t log_interval_;
  MetricsFile metrics_;
  std::optional<TensorBoardWriter> events_;  // logging.tensorboard.enabled
  ProgressBar progress_;
};

}  // namespace trireme
