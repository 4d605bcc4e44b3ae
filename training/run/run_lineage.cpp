#include "training/run/run_lineage.h"

#include <filesystem>

#include "engine/core/error.h"
#include "engine/io/sharded_checkpoint.h"
#include "training/data/examples/finetune_data.h"
#include "training/run/run_directory.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

fs::path absolute_path(const std::string& path) { return fs::absolute(path).lexically_normal(); }

}  // namespace

CheckpointLineage run_lineage(const RunConfig& config, const ResumePlan& plan,
                              const FinetuneData* data) {
  CheckpointLineage lineage;
  lineage.special_tokens =
      config.finetune.enabled || !plan.weights.empty() ||
      (!plan.checkpoint.empty() && read_lineage(CheckpointReader(plan.checkpoint)).special_tokens);
  if (data == nullptr) return lineage;
  lineage.chat_templates = data->chat_templates;
  lineage.examples = data->train_set->fingerprint();
  lineage.data = data->summary;
  if (!depends_on_base(config.finetune)) return lineage;
  const fs::path base = absolute_path(plan.weights);
  lineage.base = base.string();
  lineage.base_relative = base.lexically_relative(absolute_path(config.checkpoint.save)).string();
  lineage.base_identity = model_identity(plan.weights);
  return lineage;
}

void check_same_examples(const RunConfig& config, const ResumePlan& plan,
                         const CheckpointLineage& now) {
  const CheckpointLineage saved = read_lineage(CheckpointReader(plan.checkpoint));
  if (saved.examples.empty() || saved.examples == now.examples) return;
  fail_input(plan.checkpoint, " was trained on other examples: expected ", saved.data, " (",
             saved.examples, "), got ", now.data, " (", now.examples,
             "); put the files, the tokenizer and the chat template back as they were, or ",
             advice_for_another_run(config, plan));
}

}  // namespace trireme
