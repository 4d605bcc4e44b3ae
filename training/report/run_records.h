// Writer of a run's records, on rank 0 only: metrics.jsonl, console lines, train.log, TensorBoard
// events, progress bar.
#pragma once

#include <optional>
#include <string>

#include "engine/observe/metrics.h"
#include "engine/observe/progress.h"
#include "engine/observe/tensorboard.h"
#include "training/config/run_config.h"

namespace trireme {

// Path of metrics.jsonl in config.output_dir.
std::string metrics_path(const RunConfig& config);

class RunRecords {
 public:
  // Opens the files in config.output_dir and removes records of steps after `resume_step`, 0 for a
  // new run.
  RunRecords(const RunConfig& config, int64_t resume_step);
  ~RunRecords();
  RunRecords(const RunRecords&) = delete;
  RunRecords& operator=(const RunRecords&) = delete;
  void write(const StepMetrics& metrics);

 private:
  int64_t log_interval_;
  MetricsFile metrics_;
  std::optional<TensorBoardWriter> events_;  // only with logging.tensorboard.enabled
  ProgressBar progress_;
};

}  // namespace trireme
