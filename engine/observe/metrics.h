// Writer and reader of metrics.jsonl: one JSON object per line, numbers as decimals that parse to
// the same double.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "engine/observe/step_metrics.h"

namespace trireme {

// Record of a step. Non-finite numbers become null when it is dumped.
nlohmann::ordered_json step_metrics_to_json(const StepMetrics& metrics);

class MetricsFile {
 public:
  MetricsFile() = default;
  // resume_step < 0: truncates the file. Otherwise keeps the records up to and including that step,
  // so that a resumed run's file equals an uninterrupted one's. A last line torn by a kill is
  // dropped; any other line that is not a record is an InputError.
  MetricsFile(std::string path, int64_t resume_step = -1);
  ~MetricsFile();
  MetricsFile(MetricsFile&& other) noexcept;
  MetricsFile& operator=(MetricsFile&& other) noexcept;
  // Passes the line to the system in one call before it returns. If the system accepts only a part
  // of it or nothing (a full disk), the file is left as it was, the first such record is reported
  // with a warning, and the run continues without it.
  void write(const nlohmann::ordered_json& record);
  void write(const StepMetrics& metrics);

 private:
  std::string path_;
  int descriptor_ = -1;
  bool warned_ = false;
};

// Returns all complete records of a file: JSON objects with an integer "step". A torn last line is
// ignored. Any other invalid line is an InputError, and so is a file that cannot be read.
std::vector<nlohmann::ordered_json> read_metrics(const std::string& path);

}  // namespace trireme
