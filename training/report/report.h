// Reports of runs: a self-contained HTML page, loss and throughput curves as SVG files, and a chart
// for the terminal, all from the runs' metrics.jsonl and resolved_config.json.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace trireme {

enum class ReportAxis { kStep, kTokens };

struct ValidationCurve {
  std::string name;          // of the set; "" for a single set
  std::vector<double> loss;  // per record
};

// One run as recorded. Values that a record lacks, or that were not finite, are NaN.
struct RunRecord {
  std::string name;    // last part of the directory's path; made unique among the runs
  std::string path;    // of the metrics file
  std::string config;  // resolved_config.json as text; empty if there is none
  std::vector<double> step, tokens, loss, tokens_per_second, step_ms, grad_norm, lr, mfu;
  std::vector<ValidationCurve> validation;  // in the order in which the sets first appear
};

struct ValidationSummary {
  std::string name;
  double last = 0, best = 0, best_step = 0;
};

struct RunSummary {
  std::string model;  // "llama, 4 layers, hidden 128, 4 heads"; empty without a config
  std::string batch;  // "12 x 64": sequences x tokens
  double steps = 0, planned_steps = 0, tokens = 0;
  double loss = 0;  // mean of the last 50 steps
  std::vector<ValidationSummary> validation;
  double tokens_per_second = 0, step_ms = 0;  // medians
  std::optional<double> mfu;                  // median
};

// Reads a run. `path`: a run directory (output_dir), or a metrics file. InputError if there is
// nothing to read.
RunRecord read_run(const std::string& path);
std::vector<RunRecord> read_runs(const std::vector<std::string>& paths);
RunSummary summarize(const RunRecord& run);

struct ReportFiles {
  std::string page;
  std::vector<std::string> pictures;  // SVG files beside the page: <page>-loss.svg, -throughput.svg
  bool interactive = false;           // the page includes dygraphs; else static pictures
};
// Writes the page to `output` and the pictures beside it. Interactive charts need dygraphs (Debian
// package libjs-dygraphs) on this machine, not on the reader's.
ReportFiles write_report(const std::vector<RunRecord>& runs, const std::string& output,
                         ReportAxis axis = ReportAxis::kStep);

// Summary and chart of the first run's loss, for a terminal of `columns`.
std::string report_text(const std::vector<RunRecord>& runs, int columns);

}  // namespace trireme
