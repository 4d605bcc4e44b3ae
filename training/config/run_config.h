// Run configuration: one JSON file plus --set overrides, resolved and checked before any work. Key
// names are DeepSpeed's and Megatron's (docs/reference/config-reference.md is generated from the
// schema).
//
// "model" is a path relative to the configuration file (on the command line: to the current
// directory), or an object. All other paths (data, output, checkpoints) are relative to the current
// directory, as in Megatron.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/config/reader.h"
#include "engine/config/schema.h"
#include "engine/core/dtype.h"
#include "optim/config.h"
#include "parallel/comm/comm_config.h"
#include "parallel/layout.h"
#include "training/config/finetune_config.h"
#include "transformer/config/model_config.h"
#include "transformer/config/recompute.h"
#include "transformer/pass/float8_state.h"

namespace trireme {

struct BlendPart {
  double weight = 1.0;
  std::string prefix;  // of the .bin/.idx pair
};

// Sequences for the loss of a validation. A single set has no name.
struct ValidationSet {
  std::string name;
  std::vector<BlendPart> parts;
};

struct DataConfig {
  std::vector<BlendPart> train;      // data.data_path, or data.train_data_path
  std::vector<ValidationSet> valid;  // data.valid_data_path; empty: the split of data_path
  std::vector<BlendPart> test;
  std::string split = "969,30,1";     // of data_path; empty if train_data_path is given
  std::string tokenizer;              // "byte" or a path to a .model; may be empty for training
  bool reset_position_ids = false;    // packed documents: positions restart after eod
  bool reset_attention_mask = false;  // packed documents: no attention across eod
  bool eod_mask_loss = false;
  // If one of the three is set and the file has no id: the tokenizer's, else the model's
  // eos_token_id. -1: unknown, and not needed.
  int64_t eod_token_id = -1;
};

struct CheckpointConfig {
  std::string save;  // resolved: output_dir/checkpoints unless set
  std::string load;
  int64_t save_interval = 0;  // 0: at the end only
  int64_t keep_last = 3;      // 0: keep all
};

struct PipelineConfig {
  std::string schedule = "1f1b";  // a name, or the path of a schedule file
  int64_t virtual_stages = 1;     // chunks of layers per rank
  std::vector<int64_t> layers;    // per chunk of the model; empty: as equal as possible
};

struct ZeroConfig {
  int stage = 0;  // 1: optimizer state divided over the data-parallel ranks; 2: gradients too;
                  // 3: weights too
  bool prefetch = true;  // stage 3: gather the next block while one computes
  OffloadConfig offload_optimizer;
};

struct LoggingConfig {
  int64_t log_interval = 1;  // steps_per_print
  bool tensorboard = false;
};

struct RunConfig {
  ModelConfig model;
  std::string output_dir;
  int64_t train_batch_size = 0;  // sequences of one optimizer step over all ranks
  int64_t micro_batch_size = 0;  // sequences of one forward pass on one rank
  int64_t gradient_accumulation_steps = 0;
  int64_t sequence_length = 0;
  int64_t train_steps = 0;
  uint64_t seed = 1234;
  std::string device = "auto";
  DType dtype = DType::kF32;  // bf16.enabled, fp16.enabled
  LossScaleConfig loss_scale;
  Float8Config float8;
  OptimizerConfig optimizer;
  SchedulerConfig scheduler;
  double gradient_clipping = 1.0;      // 0: off
  int64_t max_consecutive_skips = 20;  // non-finite steps in a row before the run stops
  Recompute recompute = Recompute::kNone;
  ParallelSizes parallel;  // dp is the number of ranks that the other sizes leave
  ContextCommType cp_comm_type = ContextCommType::kP2P;
  PipelineConfig pipeline;
  ZeroConfig zero;
  DataConfig data;
  FinetuneConfig finetune;
  CheckpointConfig checkpoint;
  CommConfig comm;
  LoggingConfig logging;
  int64_t eval_interval = 0;  // steps; 0: at the end only
  int64_t eval_steps = 0;     // batches of train_batch_size; 0: the whole validation split
  int threads_per_rank = 0;   // 0: cores of the node divided by its ranks
  std::string isa = "auto";   // cpu.isa
  bool deterministic = true;
  bool cuda_autotune = false;
  std::string cuda_gemm_algorithms;  // folder; with cuda_autotune
  bool cuda_cudnn_attention = true;
  bool cuda_synchronous = false;
  bool cuda_graphs = true;
  std::vector<std::string> notes;  // remarks on accepted keys, to be logged once
};

// Reads and resolves a configuration. Reports all problems at once in one InputError, one line per
// problem with its JSON path.
// world_size: ranks of the run, needed to resolve the layout and the batch rule
//   train_batch_size = train_micro_batch_size_per_gpu x gradient_accumulation_steps x dp.
// overrides: "a.b=v" of --set, applied in order to the document before it is checked.
// sequences: counts the sequences of an epoch of a fine-tuning run whose train_steps are "auto"
// (count_sequences() in training/data/examples/finetune_data.h); without it "auto" is an error. A
// fine-tuning run without "model" uses that of checkpoint.load.
using CountSequences = std::function<int64_t(const RunConfig& read_so_far)>;
RunConfig load_run_config(const std::string& path, const std::vector<std::string>& overrides,
                          int world_size, const CountSequences& sequences = {});
RunConfig read_run_config(const Json& json, int world_size);
// Steps of num_train_epochs over that many sequences: the last batch may be smaller than the
// others.
int64_t finetune_steps(const RunConfig& config, int64_t sequences);
// Reads the output of run_config_to_json(), for the number of ranks it was resolved for.
RunConfig resolved_run_config(const Json& json);
// Content of resolved_config.json: every key, with "auto" replaced; reading it gives the same
// RunConfig.
Json run_config_to_json(const RunConfig& config);
// Hash of everything that determines the training trajectory (model, names of data files, batch,
// optimizer, seed, dtype ...). Excluded are output paths, folders of data, logging, evaluation,
// layout and thread counts, and also train_steps and the scheduler, whose effect on the completed
// steps is compared instead (training/run/run_directory.h). 16 hex digits.
std::string trajectory_hash(const RunConfig& config);

// Table of keys; the reference page and the JSON Schema are generated from it.
const Schema& run_schema();
Json run_config_json_schema();
std::string config_reference();  // content of docs/reference/config-reference.md

}  // namespace trireme
