// `trireme eval`: loss or task metrics of a saved model.
#pragma once

#include <optional>
#include <string>

#include "parallel/comm/world.h"
#include "training/eval/eval_task.h"
#include "training/eval/evaluate.h"
#include "transformer/model/model_layout.h"

namespace trireme {

struct EvaluateOptions {
  std::string model;                        // run directory, checkpoint, or third-party model
  std::string adapter;                      // PEFT adapter for the model; empty: none
  std::optional<DType> dtype;               // compute dtype; absent: the checkpoint's
  std::optional<BlockFormat> quantization;  // of the weights, as in LoadedModel
  std::string data;  // token file prefix; empty: the run's own validation data
  std::string task;  // questions or texts (training/eval/eval_task.h) instead of data
  // Delimiter between context and choice of a task; absent: a space, or nothing after a chat
  // template's text.
  std::optional<std::string> delimiter;
  bool add_bos = false;              // for a task's contexts; always set for Gemma
  bool apply_chat_template = false;  // for a task's contexts
  std::string chat_template;         // file, or a tokenizer's directory; empty: the model's
  std::string tokenizer;             // for a task; empty: the run's
  std::string samples;  // for a task: output file of the log-likelihoods per record; empty: none
  std::string validation_set;    // of the run's named sets; empty: all of them
  int64_t sequence_length = 0;   // 0: as trained; task on a third-party model: the model's limit
  int64_t micro_batch_size = 0;  // 0: as trained
  int64_t max_samples = 0;       // of each set, at equal distances; 0: all
  std::string device = "auto";   // auto, cpu, cuda
  // Any layout, whatever the model was trained with; the remaining ranks share the samples.
  LayoutOptions layout;
};

struct EvaluateReport {
  std::string checkpoint;
  struct Set {
    std::string name;  // "" for a single set, and for EvaluateOptions::data
    std::string data;  // description
    EvalResult result;
  };
  std::vector<Set> sets;
  // Results of a task.
  int64_t questions = 0, texts = 0;
  int64_t truncated = 0;  // choices whose contexts were cut
  std::vector<TaskMetric> metrics;
  std::string samples;  // path of the file, if requested
  double seconds = 0;
};

EvaluateReport evaluate_checkpoint(const EvaluateOptions& options, World& world);

}  // namespace trireme
