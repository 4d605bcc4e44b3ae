// `trireme eval`: the loss of a saved model on token files.
#pragma once

#include <optional>
#include <string>

#include "parallel/comm/world.h"
#include "training/eval/eval_task.h"
#include "training/eval/evaluate.h"
#include "transformer/model/model_layout.h"

namespace trireme {

struct EvaluateOptions {
  std::string model;                        // run directory, checkpoint, or a model of others
  std::string adapter;                      // of PEFT, for the model; empty: none
  std::optional<DType> dtype;               // to compute in; absent: the checkpoint's
  std::optional<BlockFormat> quantization;  // of the weights, as LoadedModel has it
  std::string data;  // token file prefix; empty: the run's own validation data
  std::string task;  // questions or texts (training/eval/eval_task.h) in the place of data
  // Of a task's choices from their context; absent: a space, nothing behind what a chat template
  // wrote.
  std::optional<std::string> delimiter;
  bool add_bos = false;              // to a task's contexts; Gemma's have it always
  bool apply_chat_template = false;  // to a task's contexts
  std::string chat_template;         // file, or a tokenizer's directory; empty: the model's
  std::string tokenizer;             // of a task; empty: the run's
  std::string samples;  // of a task: file for the log-likelihoods of each record; empty: none
  std::string validation_set;  // of the run's named sets; empty: all of them
  int64_t sequence_length =
      0;  // 0: as trained; of a task on a model of others what the model takes
  int64_t micro_batch_size = 0;  // 0: as trained
  int64_t max_samples = 0;       // of each set, at equal distances; 0: all
  std::string device = "auto";   // auto, cpu, cuda
  // Any layout, whatever the model was trained under; the ranks it leaves share the samples.
  LayoutOptions layout;
};

struct EvaluateReport {
  std::string checkpoint;
  struct Set {
    std::string name;  // "" of a set that stands alone, and of EvaluateOptions::data
    std::string data;  // description
    EvalResult result;
  };
  std::vector<Set> sets;
  // Of a task.
  int64_t questions = 0, texts = 0;
  int64_t truncated = 0;  // choices whose contexts were cut
  std::vector<TaskMetric> metrics;
  std::string samples;  // where they were asked for
  double seconds = 0;
};

EvaluateReport evaluate_checkpoint(const EvaluateOptions& options, World& world);

}  // namespace trireme
