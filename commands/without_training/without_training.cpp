// Placeholders of the commands in commands/training/ for a build with -DTRIREME_TRAINING=OFF.
#include "commands/absent_command.h"
#include "commands/bench/bench.h"
#include "commands/training/config.h"
#include "commands/training/data.h"
#include "commands/training/eval.h"
#include "commands/training/rendezvous.h"
#include "commands/training/report.h"
#include "commands/training/training_commands.h"
#include "commands/training/training_memory.h"

namespace trireme {
namespace {

const AbsentPart kTrainer{"the trainer", "TRIREME_TRAINING"};

}  // namespace

void add_training_commands(CLI::App& parent, const CommandLine&) {
  add_absent_command(parent, "pretrain", kTrainer);
  add_absent_command(parent, "finetune", kTrainer);
}

CLI::App* add_config_command(CLI::App& parent) {
  return add_absent_command(parent, "config", kTrainer);
}

CLI::App* add_data_command(CLI::App& parent) {
  return add_absent_command(parent, "data", kTrainer);
}

CLI::App* add_eval_command(CLI::App& parent, const CommandLine&) {
  return add_absent_command(parent, "eval", kTrainer);
}

CLI::App* add_rendezvous_command(CLI::App& parent) {
  return add_absent_command(parent, "rendezvous", kTrainer);
}

CLI::App* add_report_command(CLI::App& parent) {
  return add_absent_command(parent, "report", kTrainer);
}

CLI::App* add_bench_train(CLI::App& parent) {
  return add_absent_command(parent, "train", kTrainer);
}

std::vector<TrainingMemoryRow> training_memory(const ModelConfig&, int64_t) { return {}; }

}  // namespace trireme
