#include "training/report/report.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "engine/core/error.h"
#include "engine/io/atomic_file.h"
#include "engine/io/strict_json.h"
#include "engine/observe/metrics.h"
#include "engine/observe/progress.h"
#include "engine/observe/text_plot.h"
#include "training/report/report_page.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;
using OrderedJson = nlohmann::ordered_json;

// Installation path of Debian's libjs-dygraphs.
constexpr const char* kDygraphs = "/usr/share/javascript/dygraphs/dygraph.min";
constexpr size_t kLastSteps = 50;

double number(const OrderedJson& record, const char* key) {
  const auto it = record.find(key);
  const bool there = it != record.end() && it->is_number();
  return there ? it->get<double>() : std::numeric_limits<double>::quiet_NaN();
}

std::optional<double> median(std::vector<double> values) {
  std::erase_if(values, [](double v) { return !std::isfinite(v); });
  if (values.empty()) return std::nullopt;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double mean_of_last(const std::vector<double>& values, size_t count) {
  double sum = 0, n = 0;
  for (size_t i = values.size() - std::min(values.size(), count); i < values.size(); ++i) {
    if (!std::isfinite(values[i])) continue;
    sum += values[i];
    n += 1;
  }
  return n > 0 ? sum / n : std::numeric_limits<double>::quiet_NaN();
}

// Value of a model key under its Llama or its GPT-2 name, as text.
std::string either(const OrderedJson& model, const char* llama, const char* gpt2) {
  const char* key = model.contains(llama) ? llama : gpt2;
  return model.contains(key) ? model[key].dump() : "?";
}

void describe_config(const OrderedJson& config, RunSummary& summary) {
  if (!config.is_object()) return;
  if (const auto model = config.find("model"); model != config.end() && model->is_object()) {
    const OrderedJson& m = *model;
    const OrderedJson type = m.value("model_type", OrderedJson("model"));
    summary.model = concat(type.is_string() ? type.get<std::string>() : "model", ", ",
                           either(m, "num_hidden_layers", "n_layer"), " layers, hidden ",
                           either(m, "hidden_size", "n_embd"), ", ",
                           either(m, "num_attention_heads", "n_head"), " heads");
  }
  if (config.contains("train_batch_size") && config.contains("sequence_length")) {
    summary.batch =
        concat(config["train_batch_size"].dump(), " x ", config["sequence_length"].dump());
  }
  const double planned = number(config, "train_steps");
  if (std::isfinite(planned)) summary.planned_steps = planned;
}

std::vector<double> points_only(const std::vector<double>& values, const std::vector<double>& x,
                                std::vector<double>& kept_x) {
  std::vector<double> kept;
  for (size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i])) continue;
    kept.push_back(values[i]);
    kept_x.push_back(x[i]);
  }
  return kept;
}

// Adds a smoothed curve above pale raw values; each run has its colour.
void add_curve(Plot& plot, const std::string& name, const std::vector<double>& x,
               const std::vector<double>& y, int colour) {
  const double window = std::max(1.0, static_cast<double>(y.size()) / 100);
  if (window > 2) plot.series.push_back({"", x, y, colour, true, false});
  plot.series.push_back({name, x, smoothed(y, window), colour, false, false});
}

std::vector<ReportChart> make_charts(const std::vector<RunRecord>& runs, ReportAxis axis) {
  const std::string x_label = axis == ReportAxis::kStep ? "step" : "tokens";
  const auto plot = [&](const char* title, const char* y_label) {
    Plot p;
    p.title = title;
    p.x_label = x_label;
    p.y_label = y_label;
    return p;
  };
  ReportChart loss{"loss", plot("Loss", "nats per token")};
  ReportChart speed{"throughput", plot("Throughput", "tokens per second")};
  ReportChart norm{"grad-norm", plot("Gradient norm before clipping", "norm")};
  ReportChart rate{"learning-rate", plot("Learning rate", "learning rate")};
  const int colours = static_cast<int>(runs.size());
  int validation_colour = colours;
  for (int r = 0; r < colours; ++r) {
    const RunRecord& run = runs[static_cast<size_t>(r)];
    const std::vector<double>& x = axis == ReportAxis::kStep ? run.step : run.tokens;
    add_curve(loss.plot, run.name, x, run.loss, r);
    for (const ValidationCurve& curve : run.validation) {
      std::vector<double> at;
      const std::vector<double> points = points_only(curve.loss, x, at);
      const std::string name =
          concat(run.name, ", validation", curve.name.empty() ? "" : " ", curve.name);
      loss.plot.series.push_back({name, at, points, validation_colour++, false, true});
    }
    add_curve(speed.plot, run.name, x, run.tokens_per_second, r);
    add_curve(norm.plot, run.name, x, run.grad_norm, r);
    rate.plot.series.push_back({run.name, x, run.lr, r, false, false});
  }
  return {loss, speed, norm, rate};
}

// Adds the last record's loss of one validation set, if it is a number.
void add_validation(RunRecord& run, const std::string& name, const OrderedJson& loss) {
  if (!loss.is_number()) return;
  auto curve = std::ranges::find(run.validation, name, &ValidationCurve::name);
  if (curve == run.validation.end()) {
    run.validation.push_back({name, {}});
    curve = std::prev(run.validation.end());
  }
  curve->loss.resize(run.step.size(), std::numeric_limits<double>::quiet_NaN());
  curve->loss.back() = loss.get<double>();
}

void add_validations(RunRecord& run, const OrderedJson& record) {
  if (const auto one = record.find("validation_loss"); one != record.end())
    add_validation(run, "", *one);
  if (const auto named = record.find("validation_losses");
      named != record.end() && named->is_object())
    for (const auto& [name, loss] : named->items()) add_validation(run, name, loss);
}

std::string read_if_present(const std::string& path) {
  std::error_code error;
  return fs::is_regular_file(path, error) ? read_small_file(path) : "";
}

}  // namespace

RunRecord read_run(const std::string& path) {
  std::error_code error;
  const bool directory = fs::is_directory(path, error);
  RunRecord run;
  run.path = directory ? path + "/metrics.jsonl" : path;
  const fs::path folder = directory ? fs::path(path) : fs::path(path).parent_path();
  run.name = fs::absolute(folder / "x").lexically_normal().parent_path().filename().string();
  if (!fs::exists(run.path)) {
    fail_input("no metrics at ", run.path, ": give the output_dir of a run, or its metrics.jsonl");
  }
  double tokens = 0;
  for (const OrderedJson& record : read_metrics(run.path)) {
    run.step.push_back(number(record, "step"));
    const double step_tokens = number(record, "tokens"),
                 consumed = number(record, "consumed_tokens");
    tokens = std::isfinite(consumed) ? consumed
                                     : tokens + (std::isfinite(step_tokens) ? step_tokens : 0);
    run.tokens.push_back(tokens);
    run.loss.push_back(number(record, "loss"));
    add_validations(run, record);
    run.tokens_per_second.push_back(number(record, "tokens_per_second"));
    run.step_ms.push_back(number(record, "step_ms"));
    run.grad_norm.push_back(number(record, "grad_norm"));
    run.lr.push_back(number(record, "lr"));
    run.mfu.push_back(number(record, "mfu"));
  }
  if (run.step.empty()) fail_input("no records in ", run.path, ": the run has not finished a step");
  run.config = read_if_present((folder / "resolved_config.json").string());
  return run;
}

std::vector<RunRecord> read_runs(const std::vector<std::string>& paths) {
  if (paths.empty()) fail_input("no runs given: trireme report RUN...");
  std::vector<RunRecord> runs;
  std::set<std::string> names;
  for (const std::string& path : paths) {
    runs.push_back(read_run(path));
    const std::string name = runs.back().name;
    for (int n = 2; !names.insert(runs.back().name).second; ++n) {
      runs.back().name = concat(name, " (", n, ")");
    }
  }
  return runs;
}

RunSummary summarize(const RunRecord& run) {
  RunSummary summary;
  summary.steps = run.step.back();
  summary.planned_steps = summary.steps;
  summary.tokens = run.tokens.back();
  summary.loss = mean_of_last(run.loss, kLastSteps);
  for (const ValidationCurve& curve : run.validation) {
    ValidationSummary set{curve.name, 0, std::numeric_limits<double>::infinity(), 0};
    for (size_t i = 0; i < curve.loss.size(); ++i) {
      if (!std::isfinite(curve.loss[i])) continue;
      set.last = curve.loss[i];
      if (curve.loss[i] >= set.best) continue;
      set.best = curve.loss[i];
      set.best_step = run.step[i];
    }
    summary.validation.push_back(set);
  }
  const double none = std::numeric_limits<double>::quiet_NaN();
  summary.tokens_per_second = median(run.tokens_per_second).value_or(none);
  summary.step_ms = median(run.step_ms).value_or(none);
  summary.mfu = median(run.mfu);
  describe_config(parse_json_text<OrderedJson>(run.config), summary);
  return summary;
}

ReportFiles write_report(const std::vector<RunRecord>& runs, const std::string& output,
                         ReportAxis axis) {
  ReportFiles files;
  files.page = output;
  const fs::path place(output);
  const fs::path folder = place.has_parent_path() ? place.parent_path() : fs::path(".");
  make_directories(folder.string());
  const std::vector<ReportChart> charts = make_charts(runs, axis);
  for (size_t i = 0; i < 2; ++i) {  // loss and throughput
    const std::string name = place.stem().string() + "-" + charts[i].id + ".svg";
    files.pictures.push_back((folder / name).string());
    write_file_atomically(files.pictures.back(), svg_plot(charts[i].plot));
  }
  const std::string script = read_if_present(std::string(kDygraphs) + ".js");
  const std::string style = read_if_present(std::string(kDygraphs) + ".css");
  files.interactive = !script.empty();
  write_file_atomically(output, report_page(runs, charts, script, style));
  return files;
}

std::string report_text(const std::vector<RunRecord>& runs, int columns) {
  std::string out;
  for (const RunRecord& run : runs) {
    const RunSummary s = summarize(run);
    out += concat(run.name, ": ", s.steps, " steps, ", format_count(s.tokens), " tokens, loss ",
                  std::round(s.loss * 1e4) / 1e4);
    for (const ValidationSummary& set : s.validation) {
      out += concat(", best validation loss ", std::round(set.best * 1e4) / 1e4, " at step ",
                    set.best_step, set.name.empty() ? "" : " on ", set.name);
    }
    if (std::isfinite(s.tokens_per_second)) {
      out += concat(", ", format_count(s.tokens_per_second), " tokens/s");
    }
    out += "\n";
  }
  const std::string picture = text_plot(runs.front().step, runs.front().loss, columns, 12);
  return out + (picture.empty() ? "" : "\nloss of " + runs.front().name + "\n" + picture);
}

}  // namespace trireme
