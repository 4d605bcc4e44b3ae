// metrics.jsonl: one JSON object a line, numbers in the shortest form that reads back to the same
// double.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "engine/observe/step_metrics.h"

namespace trireme {

nlohmann::ordered_json step_metrics_to_json(const StepMetrics& metrics);  // non-finite: null

class MetricsFile {
 public:
  MetricsFile() = default;
  // resume_step < 0: a new file. Otherwise keeps the records up to and including that step, so that
  // a resumed run's file equals an undisturbed one's; a line torn by a kill is dropped.
  MetricsFile(std::string path, int64_t resume_step = -1);
  ~MetricsFile();
  MetricsFile(MetricsFile&& other) noexcept;
  MetricsFile& operator=(MetricsFile&& other) noexcept;
  // Each line reaches the system in one call before write() returns. Where the system takes none of
  // it or only a part (a full disk), the file stays as it was, the first such record is warned of,
  // and the run goes on: a record is not worth a run.
  void write(const nlohmann::ordered_json& record);
  void write(const StepMetrics& metrics);

 private:
  std::string path_;
  int descriptor_ = -1;
  bool warned_ = false;
};

// All whole records of a file; a torn last line is ignored, any other bad line is an InputError.
std::vector<nlohmann::ordered_json> read_metrics(const std::string& path);

}  // namespace trireme
