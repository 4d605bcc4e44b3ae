// Report of one or several runs: a self-contained HTML page, SVG files of loss and throughput, and
// a chart for the terminal. It is made from the runs' metrics.jsonl and resolved_config.json.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace trireme {

enum class ReportAxis { kStep, kTokens };

struct ValidationCurve {
  std::string name;  // of the validation set; "" for a single set
  // One per record, up to the last one with an evaluation; NaN: not evaluated at that step.
  std::vector<double> loss;
};

// Records of one run, one value per record (step). NaN: the record has no such value, or it was not
// finite. `tokens` are cumulative.
struct RunRecord {
  std::string name;    // last part of the directory's path, made unique among the runs
  std::string path;    // path of metrics.jsonl
  std::string config;  // text of resolved_config.json; empty if there is none
  std::vector<double> step, tokens, loss, tokens_per_second, step_ms, grad_norm, lr, mfu;
  std::vector<ValidationCurve> validation;  // in the order in which the sets first appear
};

// Loss of one validation set: the last and the lowest value.
struct ValidationSummary {
  std::string name;
  double last = 0, best = 0, best_step = 0;
};

struct RunSummary {
  std::string model;  // "llama, 4 layers, hidden 128, 4 heads"; empty without a configuration
  std::string batch;  // "12 x 64": sequences x tokens
  // Step of the last record; train_steps of the configuration, or else `steps`; tokens so far.
  double steps = 0, planned_steps = 0, tokens = 0;
  double loss = 0;  // mean of the last 50 records; NaN: none has a loss
  std::vector<ValidationSummary> validation;
  double tokens_per_second = 0, step_ms = 0;  // medians over the steps; NaN: not recorded
  std::optional<double> mfu;                  // median over the steps
};

// Reads a run. path: run directory (output_dir), or its metrics.jsonl. InputError if the file does
// not exist or has no records.
RunRecord read_run(const std::string& path);
// Reads several runs and makes their names unique. InputError as read_run(), and for no runs.
std::vector<RunRecord> read_runs(const std::vector<std::string>& paths);
RunSummary summarize(const RunRecord& run);

struct ReportFiles {
  std::string page;
  std::vector<std::string> pictures;  // SVG files: <page>-loss.svg, <page>-throughput.svg
  bool interactive = false;           // the charts of the page use dygraphs; false: static pictures
};
// Writes the page to `output` and the SVG files to the same folder. Interactive charts need
// dygraphs (Debian package libjs-dygraphs) on this machine; the page then contains it.
ReportFiles write_report(const std::vector<RunRecord>& runs, const std::string& output,
                         ReportAxis axis = ReportAxis::kStep);

// Text for a terminal of `columns` columns: a summary of each run, and a chart of the first run's
// loss.
std::string report_text(const std::vector<RunRecord>& runs, int columns);

}  // namespace trireme
