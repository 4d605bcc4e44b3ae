#include "training/report/run_records.h"

#include <filesystem>

#include "engine/observe/console_line.h"
#include "engine/observe/log.h"

namespace trireme {
namespace {

std::string path_in_output(const RunConfig& config, const char* name) {
  return (std::filesystem::path(config.output_dir) / name).string();
}

}  // namespace

std::string metrics_path(const RunConfig& config) {
  return path_in_output(config, "metrics.jsonl");
}

RunRecords::RunRecords(const RunConfig& config, int64_t resume_step)
    : log_interval_(config.logging.log_interval),
      metrics_(metrics_path(config), resume_step > 0 ? resume_step : -1),
      progress_("pretrain", resume_step) {
  open_log_file(path_in_output(config, "train.log"));
  if (config.logging.tensorboard)
    events_.emplace(path_in_output(config, "tensorboard"), resume_step + 1);
}

RunRecords::~RunRecords() { close_log_file(); }

void RunRecords::write(const StepMetrics& metrics) {
  metrics_.write(metrics);
  if (events_) events_->write(metrics);
  const bool last = metrics.step == metrics.train_steps;
  if (last || metrics.step % log_interval_ == 0) log_line(console_line(metrics));
  const auto log_loss = [&](double loss, const std::string& set) {
    const auto part = metrics.partial_sets.find(set);
    log_line(validation_line(metrics.step, loss, set,
                             part == metrics.partial_sets.end() ? "" : part->second));
  };
  if (metrics.validation_loss) log_loss(*metrics.validation_loss, "");
  for (const auto& [set, loss] : metrics.validation_losses) log_loss(loss, set);
  if (metrics.test_loss) log_loss(*metrics.test_loss, "test");
  progress_.update(metrics);
}

}  // namespace trireme
