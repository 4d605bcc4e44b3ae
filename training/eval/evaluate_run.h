// Evaluation of a saved model by `trireme eval`: losses of token files, or metrics of a task.
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
  std::optional<BlockFormat> quantization;  // quantization of the weights, as in LoadedModel
  std::string data;  // token file prefix; empty: the run's own validation data
  // Task file (training/eval/eval_task.h) to evaluate instead of token files; empty: none. The next
  // six options are for tasks only.
  std::string task;
  // Text between a context and a choice; absent: a space, or nothing after a chat template.
  std::optional<std::string> delimiter;
  bool add_bos = false;              // start contexts with the BOS token; always done for Gemma
  bool apply_chat_template = false;  // render contexts with the chat template
  std::string chat_template;         // file, or tokenizer directory; empty: the model's
  std::string tokenizer;             // empty: the model's
  std::string samples;               // output file of each record's log-likelihoods; empty: none
  std::string validation_set;        // name of one of the run's validation sets; empty: all sets
  // Tokens. 0: the sequence length of the training run; for a third-party model the model's limit,
  // but at most 2048. A task on a model that was not trained from scratch here: the model's limit.
  int64_t sequence_length = 0;
  int64_t micro_batch_size = 0;  // sequences; 0: as trained; a third-party model: 1
  int64_t max_samples = 0;       // evenly spaced samples of each set; 0: all
  std::string device = "auto";   // auto, cpu, cuda
  // Layout, which may differ from the one of the training run. Ranks that it leaves over become
  // data-parallel ranks and share the samples.
  LayoutOptions layout;
};

struct EvaluateReport {
  std::string checkpoint;
  struct Set {
    std::string name;  // "" for a set without a name, and for EvaluateOptions::data
    std::string data;  // BatchSource::describe()
    EvalResult result;
  };
  std::vector<Set> sets;
  // Results of a task.
  int64_t questions = 0, texts = 0;
  int64_t truncated = 0;  // choices whose contexts were truncated
  std::vector<TaskMetric> metrics;
  std::string samples;  // content for the file EvaluateOptions::samples, if requested
  double seconds = 0;   // of the whole evaluation, including loading
};

// Collective over `world`; every rank returns the same report.
EvaluateReport evaluate_checkpoint(const EvaluateOptions& options, World& world);

}  // namespace trireme
