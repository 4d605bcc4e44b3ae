// Training and validation data of a fine-tuning run.
#pragma once

#include <memory>

#include "training/config/run_config.h"
#include "training/data/examples/example_set.h"

namespace trireme {

// Sets of examples and the sources that use them. For preferences the run computes reference
// log-probabilities of both sets before training.
struct FinetuneData {
  std::shared_ptr<const ExampleSet> train_set, validation_set;
  std::unique_ptr<ExampleSource> train;
  std::unique_ptr<ExampleSource> validation;  // nullptr: none
  std::string summary;                        // line of the log
  std::vector<std::string> warnings;          // warnings of the log
  ChatTemplateSources chat_templates;         // empty: none
};

// Reads the files of config.finetune on `threads` threads. Without validation files, val_size of
// the training examples are held out; which ones depends on their number and on the seed only.
std::shared_ptr<FinetuneData> open_finetune_data(const RunConfig& config, int threads);

// Sequences of one epoch of the training data, for load_run_config(). Reads all files.
int64_t count_sequences(const RunConfig& config);

}  // namespace trireme
