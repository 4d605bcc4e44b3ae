// The examples of a fine-tuning run: which of them it learns from, and which it is validated on.
#pragma once

#include <memory>

#include "training/config/run_config.h"
#include "training/data/examples/example_set.h"

namespace trireme {

// What the two sources' examples come from, for preferences: the reference model looks at all of it
// first.
struct FinetuneData {
  std::shared_ptr<const ExampleSet> train_set, validation_set;
  std::unique_ptr<ExampleSource> train;
  std::unique_ptr<ExampleSource> validation;  // nullptr: there is none
  std::string summary;                        // of what was read, for the log
  std::vector<std::string> warnings;          // likewise
  ChatTemplateSources chat_templates;         // empty: there is none
};

// Reads the files of config.finetune on `threads` threads. Without files for validation, val_size
// says how many of the examples are held out; which ones depends on their number and the seed.
std::shared_ptr<FinetuneData> open_finetune_data(const RunConfig& config, int threads);

// Sequences of an epoch, for load_run_config(): reads the files to count them.
int64_t count_sequences(const RunConfig& config);

}  // namespace trireme
