// Training and validation examples of a fine-tuning run.
#pragma once

#include <memory>

#include "training/config/run_config.h"
#include "training/data/examples/example_set.h"

namespace trireme {

// Sets and sources of examples. For preferences the reference model evaluates both sets first.
struct FinetuneData {
  std::shared_ptr<const ExampleSet> train_set, validation_set;
  std::unique_ptr<ExampleSource> train;
  std::unique_ptr<ExampleSource> validation;  // nullptr: none
  std::string summary;                        // for the log
  std::vector<std::string> warnings;          // for the log
  ChatTemplateSources chat_templates;         // empty: none
};

// Reads the files of config.finetune on `threads` threads. Without validation files, val_size is
// the number of examples held out; their choice depends on the number of examples and the seed.
std::shared_ptr<FinetuneData> open_finetune_data(const RunConfig& config, int threads);

// Sequences of an epoch, for load_run_config(); reads the files to count them.
int64_t count_sequences(const RunConfig& config);

}  // namespace trireme
