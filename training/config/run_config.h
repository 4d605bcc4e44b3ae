// Run configuration: one JSON file plus --set overrides, resolved and checked before the run
// starts. Key names are DeepSpeed's and Megatron's; docs/reference/config-reference.md lists them.
//
// "model" and "deepspeed" are objects or paths. In the file these paths are relative to the file,
// on the command line to the current directory. All other paths (data, output, checkpoints) are
// relative to the current directory, as in Megatron.
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
#include "parallel/outer/outer_config.h"
#include "training/config/finetune_config.h"
#include "transformer/config/model_config.h"
#include "transformer/config/recompute.h"
#include "transformer/pass/float8_state.h"

namespace trireme {

struct BlendPart {
  double weight = 1.0;
  std::string prefix;  // path of the .bin/.idx pair, without the ending
};

// Token files whose loss is reported separately.
struct ValidationSet {
  std::string name;  // "" if there is only one set
  std::vector<BlendPart> parts;
};

struct DataConfig {
  std::vector<BlendPart> train;       // data.data_path, or data.train_data_path
  std::vector<ValidationSet> valid;   // data.valid_data_path; empty: the split of data_path
  std::vector<BlendPart> test;        // data.test_data_path; empty: the split of data_path
  std::string split = "969,30,1";     // shares of data_path; empty if train_data_path is set
  std::string tokenizer;              // "byte", or a path; may be empty for training
  bool reset_position_ids = false;    // positions restart after each end-of-document token (eod)
  bool reset_attention_mask = false;  // no attention across an eod
  bool eod_mask_loss = false;         // no loss where the input is an eod
  // Id of the eod; -1: unknown. If one of the three flags above is set and the configuration has no
  // id, it is the tokenizer's, else the model's eos_token_id.
  int64_t eod_token_id = -1;
};

struct CheckpointConfig {
  std::string save;           // folder; resolved: output_dir/checkpoints unless set
  std::string load;           // checkpoint or model to start from; empty: none
  int64_t save_interval = 0;  // 0: at the end only
  int64_t keep_last = 3;      // 0: keep all
};

struct PipelineConfig {
  std::string schedule = "1f1b";  // a name, or the path of a schedule file
  int64_t virtual_stages = 1;     // chunks of layers per rank
  std::vector<int64_t> layers;  // layers of each chunk, in model order; empty: as equal as possible
};

struct ZeroConfig {
  int stage = 0;  // data-parallel ranks shard: 1: optimizer state; 2: gradients too; 3: weights too
  bool prefetch = true;  // stage 3: gather the next transformer block while the current one runs
  // Stage 3: neighbouring data-parallel ranks that divide a second copy of gathered weights for
  // backward; 1: none.
  int copy_ranks = 1;
  OffloadConfig offload_optimizer;
};

struct LoggingConfig {
  int64_t log_interval = 1;  // steps between console lines
  bool tensorboard = false;  // event files in output_dir/tensorboard
};

struct RunConfig {
  ModelConfig model;
  std::string output_dir;
  int64_t train_batch_size = 0;             // sequences of one step over all ranks of all sites
  int64_t micro_batch_size = 0;             // sequences of one forward pass on one rank
  int64_t gradient_accumulation_steps = 0;  // micro-batches of one rank in one step
  int64_t sequence_length = 0;              // tokens
  int64_t train_steps = 0;                  // optimizer steps of the whole run
  uint64_t seed = 1234;
  std::string device = "auto";  // auto, cpu or cuda
  DType dtype = DType::kF32;    // bf16.enabled, fp16.enabled
  LossScaleConfig loss_scale;
  Float8Config float8;
  OptimizerConfig optimizer;
  SchedulerConfig scheduler;
  double gradient_clipping = 1.0;      // maximum of the global gradient norm; 0: no clipping
  int64_t max_consecutive_skips = 20;  // non-finite steps in a row before the run stops
  Recompute recompute = Recompute::kNone;
  ParallelSizes parallel;  // of one site; resolved: dp = ranks / (sites x tp x pp x cp)
  ContextCommType cp_comm_type = ContextCommType::kP2P;
  PipelineConfig pipeline;
  ZeroConfig zero;
  GradientCompressionConfig compression;
  WeightCompressionConfig weight_compression;
  OuterConfig outer;
  DataConfig data;
  FinetuneConfig finetune;
  CheckpointConfig checkpoint;
  CommConfig comm;
  LoggingConfig logging;
  int64_t eval_interval = 0;  // steps between validations; 0: at the end only
  int64_t eval_steps = 0;     // batches of train_batch_size per validation; 0: the whole set
  int threads_per_rank = 0;   // 0: cores of the node divided by its ranks
  std::string isa = "auto";   // instruction set: cpu.isa
  bool deterministic = true;  // repeated runs of one layout are bit-identical
  // Section "cuda": choose GEMM algorithms by timing them.
  bool cuda_autotune = false;
  std::string cuda_gemm_algorithms;  // folder of the algorithms that cuda_autotune chose
  bool cuda_cudnn_attention = true;  // cuDNN's attention where available
  bool cuda_synchronous = false;     // wait for every kernel, so that an error names the op
  bool cuda_graphs = true;           // training/step/micro_batch_graphs.h
  std::vector<std::string> notes;    // remarks on accepted keys; the run logs them once
};

// Reads and resolves the configuration file `path`. All problems are reported in one InputError,
// one line per problem with its JSON path. A fine-tuning run without "model" or data.tokenizer uses
// those of its own newest checkpoint, else those of checkpoint.load.
//   overrides   "a.b=v" of --set, applied in order before the document is checked; those of "model"
//               and "deepspeed" first
//   world_size  ranks of the run (of all sites), which determine dp and the batch sizes
//               (training/config/batch_rule.h)
//   sequences   counts the sequences of one epoch, for a fine-tuning run with train_steps "auto"
//               (count_sequences() in training/data/examples/finetune_data.h); empty: "auto" is an
//               error
using CountSequences = std::function<int64_t(const RunConfig& read_so_far)>;
RunConfig load_run_config(const std::string& path, const std::vector<std::string>& overrides,
                          int world_size, const CountSequences& sequences = {});
// Reads and resolves a document in memory, as load_run_config() without overrides. A path under
// "model" is relative to the current directory; a path under "deepspeed", train_steps "auto", and a
// run without "model" are errors.
RunConfig read_run_config(const Json& json, int world_size);
// Optimizer steps of num_train_epochs epochs of `sequences` sequences. The last step may have fewer
// sequences than the others.
int64_t finetune_steps(const RunConfig& config, int64_t sequences);
// Reads the output of run_config_to_json(), for the number of ranks for which it was resolved. That
// number follows from its batch sizes; InputError if it does not.
RunConfig resolved_run_config(const Json& json);
// Document of resolved_config.json: every key, with "auto" replaced. Reading it gives the same
// RunConfig.
Json run_config_to_json(const RunConfig& config);
// Hash of the keys that determine the training trajectory: model, names of data files, batch size,
// optimizer, seed, dtype and others; 16 hex digits. Excludes paths, logging, evaluation, layout and
// threads. Also excludes train_steps and the scheduler: a resumed run compares their effect on the
// completed steps instead (training/run/run_directory.h).
std::string trajectory_hash(const RunConfig& config);
// Whether the hashes are equal, apart from the outer algorithm if one of the runs has one site, and
// from a momentum that follows from the number of sites: a run continues with other numbers of
// sites.
bool same_trajectory(const RunConfig& a, const RunConfig& b);

// Keys of a run; the reference page and the JSON Schema are generated from it.
const Schema& run_schema();
Json run_config_json_schema();
std::string config_reference();  // text of docs/reference/config-reference.md

}  // namespace trireme
