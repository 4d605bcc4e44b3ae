// Keys of a training run: name, type, default, range, help, and the names that other frameworks
// use.
#include "training/config/run_schema.h"

#include "training/config/compression.h"
#include "training/config/optimizer_config.h"
#include "training/config/outer.h"
#include "training/config/run_config.h"

namespace trireme {
namespace {

constexpr double kMaxCount = 9007199254740991.0;  // integers a JSON number holds exactly: 2^53 - 1
constexpr double kMaxBatch = 1 << 24;
constexpr double kMaxSteps = 1e12;
constexpr double kMaxTrainSteps = 99'999'999;  // checkpoints have eight digits: step-00000100

void add_run(Schema& s) {
  s.any(
       "model", "", "path or object",
       "model configuration: path of a config.json or of a HuggingFace directory, relative to this "
       "file, or an object")
      .required();
  s.string("output_dir", "",
           "folder of the run, for resolved_config.json, metrics.jsonl, train.log and checkpoints")
      .required()
      .off_trajectory();
  s.any("deepspeed", "null", "path or object",
        "[DeepSpeed configuration](deepspeed-keys.md), whose keys apply where this file does not "
        "set them: path, relative to this file, or an object")
      .or_null()
      .off_trajectory()
      .alias({"deepspeed_config"});
  s.integer("train_batch_size", "\"auto\"",
            "sequences of one optimizer step over all ranks: train_micro_batch_size_per_gpu x "
            "gradient_accumulation_steps x data-parallel ranks x outer.sites; auto: from the other "
            "two sizes. "
            "Two of the three sizes determine the third, and one alone means one forward pass per "
            "step")
      .or_auto()
      .at_least(1)
      .at_most(kMaxBatch)
      .alias({"global_batch_size", "training.global_batch_size"});
  s.integer("train_micro_batch_size_per_gpu", "\"auto\"",
            "sequences of one forward pass on one rank, with or without a GPU")
      .or_auto()
      .at_least(1)
      .at_most(kMaxBatch)
      .off_trajectory()
      .alias({"micro_batch_size", "local_batch_size", "per_device_train_batch_size",
              "training.local_batch_size", "tokens.micro_batch_size"});
  s.integer("gradient_accumulation_steps", "\"auto\"",
            "forward passes of one rank in one optimizer step")
      .or_auto()
      .at_least(1)
      .at_most(kMaxBatch)
      .off_trajectory()
      .alias({"batch_accumulation_per_replica", "tokens.batch_accumulation_per_replica"});
  s.integer("sequence_length", "\"auto\"", "tokens per sequence; auto: the model's maximum")
      .or_auto()
      .at_least(1)
      .at_most(1 << 30)
      .alias({"seq_length", "max_length", "max_context_length", "training.max_context_length",
              "training.seq_len", "tokens.sequence_length"});
  s.integer(
       "train_steps", "\"auto\"",
       "optimizer steps of the whole run; auto: from finetune.num_train_epochs, if that is set")
      .or_auto()
      .at_least(1)
      .at_most(kMaxTrainSteps)
      .off_trajectory()
      .alias({"train_iters", "max_steps", "training.steps", "tokens.train_steps"});
  s.integer("seed", "1234", "seed of the initial weights, the data order and dropout")
      .at_least(0)
      .at_most(4294967295.0);
  s.choice("device", "auto", {"auto", "cpu", "cuda"},
           "compute device; auto: GPUs if every rank sees one, else the CPU")
      .off_trajectory();
  s.boolean("deterministic", true,
            "repeated runs of one layout are bit-identical; false: allows faster, nondeterministic "
            "attention on a GPU (no effect on a CPU)")
      .off_trajectory()
      .alias({"deterministic_mode"});
  s.number("gradient_clipping", "1", "maximum of the global gradient norm; 0: no clipping")
      .at_least(0)
      .auto_as_default()
      .alias({"clip_grad", "max_norm", "max_grad_norm", "training.max_norm"});
  s.integer("max_consecutive_skips", "20", "consecutive non-finite steps before the run stops")
      .at_least(1)
      .at_most(kMaxSteps)
      .off_trajectory();
}

void add_precision(Schema& s) {
  s.section("bf16", "Without bf16 and fp16 all computation is in fp32.");
  s.boolean("bf16.enabled", false, "weights and activations in bfloat16, sums in fp32")
      .auto_as_default()
      .alias({"bfloat16.enabled"});
  s.section("fp16", "Half precision, with a loss scale as in DeepSpeed.");
  s.boolean("fp16.enabled", false, "weights and activations in float16").auto_as_default();
  s.number("fp16.loss_scale", "0", "constant loss scale; 0: dynamic loss scale")
      .at_least(0)
      .auto_as_default()
      .alias({"loss_scale"});
  s.integer("fp16.initial_scale_power", "16", "initial dynamic loss scale, as a power of 2")
      .at_least(0)
      .at_most(60)
      .auto_as_default();
  s.integer("fp16.loss_scale_window", "1000",
            "consecutive finite steps after which the loss scale doubles")
      .at_least(1)
      .at_most(kMaxSteps)
      .auto_as_default()
      .alias({"loss_scale_window"});
  s.integer("fp16.hysteresis", "2",
            "number of overflows at which the loss scale halves; afterwards every overflow halves "
            "it, until it doubles again")
      .at_least(1)
      .at_most(kMaxSteps)
      .auto_as_default()
      .alias({"hysteresis"});
  s.number("fp16.min_loss_scale", "1", "minimum of the dynamic loss scale")
      .above(0)
      .auto_as_default()
      .alias({"min_loss_scale"});
}

void add_float8(Schema& s) {
  s.section(
      "fp8",
      "Matrix products of transformer blocks in 8-bit floats ([design](../design/float8.md)). "
      "Keys have the names of Transformer Engine and Megatron.");
  s.boolean("fp8.enabled", false,
            "matrix products of linear layers in 8-bit floats; everything else in bf16 or fp32");
  s.choice("fp8.format", "hybrid", {"hybrid", "e4m3"},
           "format of gradients; hybrid: E5M2; e4m3: E4M3. Weights and activations are E4M3")
      .alias({"fp8_format"});
  s.choice("fp8.recipe", "delayed", {"delayed", "tensorwise", "blockwise"},
           "scaling recipe; delayed: per tensor, from earlier steps; tensorwise: per tensor, from "
           "its current values; blockwise: per 1 x 128 elements of activations and gradients, and "
           "per 128 x 128 of weights")
      .synonym("current", "tensorwise")
      .not_yet({"mxfp8"})
      .alias({"fp8_recipe"});
  s.integer("fp8.amax_history_len", "16",
            "delayed: length of the history of largest magnitudes (amax), in steps")
      .at_least(1)
      .at_most(4096)
      .alias({"fp8_amax_history_len"});
  s.choice("fp8.amax_compute_algo", "max", {"max", "most_recent"},
           "delayed: amax that determines the scale, the largest or the most recent in the history")
      .alias({"fp8_amax_compute_algo"});
  s.integer("fp8.margin", "0", "margin of per-tensor scales: they are divided by 2^margin")
      .at_least(0)
      .at_most(32)
      .alias({"fp8_margin"});
}

void add_scheduler(Schema& s) {
  s.section(
      "scheduler",
      "The learning rate rises over warmup_steps and then follows the type. Updates are numbered "
      "from 1. In the warm-up, update k has the rate lr x k / warmup_steps; HuggingFace and "
      "Megatron use k - 1, so that their first update changes nothing. After the warm-up, update k "
      "has completed the fraction (k - 1 - warmup_steps) / (decay_steps - warmup_steps) of the "
      "decay, as in HuggingFace and Megatron. Update decay_steps + 1 therefore has the rate "
      "min_lr, and if the run ends with the decay, its last update is one step above min_lr. The "
      "types WarmupLR (constant), WarmupDecayLR (linear) and WarmupCosineLR (cosine) are "
      "DeepSpeed's: update k has the rate of DeepSpeed's class after k calls of its step(), which "
      "is 0 for the first. Their warm-up is logarithmic, over at least 2 steps, unless "
      "`warmup_type` is `\"linear\"`.");
  s.choice("scheduler.type", "cosine",
           {"constant", "linear", "cosine", "inverse_sqrt", "WSD", "WarmupLR", "WarmupDecayLR",
            "WarmupCosineLR"},
           "schedule of the learning rate after warm-up")
      .synonym("inverse-square-root", "inverse_sqrt")
      .synonym("constant_with_warmup", "constant")
      .synonym("warmup_stable_decay", "WSD")
      .not_yet({"OneCycle", "LRRangeTest", "cosine_with_restarts", "polynomial",
                "reduce_lr_on_plateau", "cosine_with_min_lr"})
      .off_trajectory()
      .alias({"lr_decay_style", "lr_scheduler_type"});
  s.integer("scheduler.params.warmup_steps", "0",
            "warm-up steps, at most train_steps; default in fine-tuning: 3 % of train_steps")
      .at_least(0)
      .at_most(kMaxSteps)
      .auto_as_default()
      .off_trajectory()
      .alias({"lr_warmup_iters", "warmup_steps", "scheduler.params.warmup_num_steps"});
  s.number("scheduler.params.warmup_ratio", "",
           "HuggingFace's name: warmup_steps as a fraction of train_steps, rounded up")
      .at_least(0)
      .at_most(1)
      .off_trajectory()
      .alias({"warmup_ratio"});
  s.integer("scheduler.params.decay_steps", "\"auto\"",
            "step at which the decay ends, counted from the start of the run (auto: train_steps); "
            "WSD: number of steps of the decay, which ends with the run (auto: a tenth of "
            "train_steps)")
      .or_auto()
      .at_least(1)
      .at_most(kMaxSteps)
      .off_trajectory()
      .alias({"lr_decay_iters", "lr_wsd_decay_iters", "scheduler.params.total_num_steps"});
  s.number("scheduler.params.min_lr", "0", "minimum of the learning rate")
      .at_least(0)
      .off_trajectory()
      .alias({"min_lr"});
  s.choice("scheduler.params.decay_style", "linear",
           {"linear", "cosine", "exponential", "minus_sqrt"}, "shape of WSD's decay")
      .off_trajectory()
      .alias({"lr_wsd_decay_style"});
  s.choice("scheduler.params.warmup_type", "linear", {"linear", "log"},
           "shape of the warm-up; log, the default of DeepSpeed's types: lr x log(step) / "
           "log(warmup_steps)")
      .auto_as_default()
      .off_trajectory();
  s.number("scheduler.params.warmup_max_lr", "", "DeepSpeed's name: must equal optimizer.params.lr")
      .at_least(0)
      .auto_as_default();
  s.number("scheduler.params.cos_min_ratio", "", "DeepSpeed's name: min_lr as a fraction of lr")
      .at_least(0)
      .at_most(1)
      .auto_as_default();
}

void add_data(Schema& s) {
  s.section("data",
            "A token file is a .bin and an .idx with the same prefix. A path is one prefix, a list "
            "`[0.3, \"a\", 0.7, \"b\"]` of weights and prefixes, or such a list as one string, as "
            "in Megatron.");
  s.any("data.data_path", "null", "prefix or list",
        "token files, which `split` divides among training, validation and test")
      .or_null()
      .alias({"data_path"});
  s.any("data.train_data_path", "null", "prefix or list", "token files for training only")
      .or_null()
      .alias({"train_data_path"});
  s.any("data.valid_data_path", "null", "prefix, list or object",
        "token files for validation, if train_data_path is set; {\"wiki\": path, \"code\": path}: "
        "named sets, each with its own loss")
      .or_null()
      .off_trajectory()
      .alias({"valid_data_path"});
  s.any("data.test_data_path", "null", "prefix or list",
        "token files for the test after the last step, if train_data_path is set")
      .or_null()
      .off_trajectory()
      .alias({"test_data_path"});
  s.string("data.split", "\"969,30,1\"", "shares of data_path for training, validation and test")
      .alias({"split"});
  s.string(
       "data.tokenizer", "null",
       "\"byte\", or the path of a tokenizer.json, a SentencePiece .model, or a directory with one")
      .or_null()
      .off_trajectory()
      .alias({"tokenizer_model", "data.tokenizer_model"});
  s.boolean("data.reset_position_ids", false, "reset position ids after each end of document")
      .alias({"reset_position_ids"});
  s.boolean("data.reset_attention_mask", false, "no attention across the end of a document")
      .alias({"reset_attention_mask"});
  s.boolean("data.eod_mask_loss", false,
            "no loss at positions whose input token is the end of a document")
      .alias({"eod_mask_loss"});
  s.integer("data.eod_token_id", "null",
            "id of the end-of-document token; null: the tokenizer's, else the model's eos_token_id")
      .or_null()
      .at_least(0)
      .at_most(2147483646);
}

void add_places(Schema& s) {
  s.choice("activation_checkpointing.granularity", "none", {"none", "selective", "full"},
           "activations to recompute in the backward pass; selective: those of norms and MLPs; "
           "full: those of whole transformer blocks. The results are the same")
      .or_null()
      .off_trajectory()
      .alias({"recompute_granularity"});
  s.string("checkpoint.save", "null", "folder for checkpoints; null: output_dir/checkpoints")
      .or_null()
      .off_trajectory()
      .alias({"save"});
  s.string("checkpoint.load", "null",
           "checkpoint, or folder of checkpoints, from which the run continues; or a HuggingFace "
           "directory or imported checkpoint, of which the run loads only the weights and starts "
           "at step 0 (Megatron's --finetune)")
      .or_null()
      .off_trajectory()
      .alias({"load", "model_name_or_path"});
  s.integer("checkpoint.save_interval", "0", "steps between checkpoints; 0: only at the end")
      .at_least(0)
      .at_most(kMaxSteps)
      .off_trajectory()
      .alias({"save_interval", "save_steps"});
  s.integer("checkpoint.keep_last", "3", "number of newest checkpoints to keep; 0: all")
      .at_least(0)
      .at_most(kMaxSteps)
      .off_trajectory()
      .alias({"save_total_limit"});
  s.integer("logging.log_interval", "1", "steps between console lines")
      .at_least(1)
      .at_most(kMaxSteps)
      .auto_as_default()
      .off_trajectory()
      .alias({"logging.steps_per_print", "steps_per_print", "log_interval", "logging_steps"});
  s.boolean("logging.tensorboard.enabled", false, "event files in output_dir/tensorboard")
      .auto_as_default()
      .off_trajectory()
      .alias({"tensorboard.enabled"});
  s.integer("evaluation.eval_interval", "0", "steps between validations; 0: only at the end")
      .at_least(0)
      .at_most(kMaxSteps)
      .off_trajectory()
      .alias({"eval_interval", "eval_steps"});
  s.integer("evaluation.eval_iters", "0",
            "batches of train_batch_size samples per validation of each set, evenly spaced; 0: the "
            "whole set")
      .at_least(0)
      .at_most(kMaxCount)
      .off_trajectory()
      .alias({"eval_iters"});
}

void add_machine(Schema& s) {
  s.choice("comm.backend", "auto", {"auto", "mpi", "tcp"},
           "communication backend of the ranks; auto: mpi under an MPI launcher, tcp with "
           "torchrun's variables")
      .not_yet({"nccl", "gloo"})
      .off_trajectory();
  s.choice("comm.algorithm", "auto", {"auto", "ring", "shm"},
           "algorithm of all-reduce and of ZeRO's collectives on one node; auto: shared memory "
           "within a node, ring between nodes")
      .off_trajectory();
  s.choice(
       "comm.device_backend", "auto", {"auto", "nccl", "staged"},
       "communication of GPU tensors; nccl: NCCL, which needs one GPU per rank; staged: through "
       "host memory")
      .off_trajectory();
  s.integer("comm.ranks_per_node", "0", "ranks per virtual node; 0: no virtual nodes")
      .at_least(0)
      .at_most(1 << 20)
      .off_trajectory();
  s.integer("comm.bucket_size", "6553600", "size of a gradient bucket, in elements of 4 bytes")
      .at_least(1024)
      .at_most(1e12)
      .auto_as_default()
      .off_trajectory()
      .alias({"zero_optimization.reduce_bucket_size", "ddp_bucket_size"});
  s.boolean("comm.overlap", true, "reduce gradients during the backward pass")
      .auto_as_default()
      .off_trajectory()
      .alias({"overlap_grad_reduce", "zero_optimization.overlap_comm"});
  s.number("comm.timeout", "600", "seconds without a response before a peer counts as lost")
      .above(0)
      .at_most(1e9)
      .off_trajectory();
  s.integer("cpu.threads_per_rank", "0",
            "threads per rank; 0: the node's cores divided by its ranks")
      .at_least(0)
      .at_most(4096)
      .off_trajectory();
  s.choice("cpu.isa", "auto", {"auto", "avx512", "avx2", "portable"},
           "newest instruction set that kernels and the GEMM library may use; auto: the "
           "processor's")
      .off_trajectory();
  s.boolean("cuda.autotune", false,
            "choose the fastest of the library's algorithms for each matrix shape by timing the "
            "best few once. The choice, and with it the last bits of results, may differ between "
            "runs: needs deterministic false, or gemm_algorithms, which stores the choice")
      .off_trajectory();
  s.string(
       "cuda.gemm_algorithms", "null",
       "folder of the algorithms that autotune chose, one file per rank. A run reuses the stored "
       "algorithms, so that its results are bit-identical, and adds missing ones when it saves")
      .or_null()
      .off_trajectory();
  s.choice("cuda.graphs", "auto", {"auto", "off"},
           "CUDA graphs; auto: capture the GPU work of a micro-batch once and replay it with one "
           "launch, if nothing in it waits for the host or another rank; off: launch every kernel")
      .off_trajectory();
  s.boolean("cuda.cudnn_attention", true,
            "cuDNN attention where available; false: only Trireme's own kernels")
      .off_trajectory();
  s.boolean("cuda.synchronous", false,
            "wait for every kernel on the GPU, so that an error names the operation; slow")
      .off_trajectory();
}

Schema make_run_schema() {
  Schema schema("Training run");
  add_run(schema);
  add_precision(schema);
  add_float8(schema);
  add_optimizer_keys(schema);
  add_scheduler(schema);
  add_data(schema);
  add_finetune_keys(schema);
  add_places(schema);
  add_machine(schema);
  add_parallel_keys(schema);
  add_compression_keys(schema);
  add_outer_keys(schema);
  add_foreign_keys(schema);
  schema.finish();
  return schema;
}

}  // namespace

const Schema& run_schema() {
  static const Schema schema = make_run_schema();
  return schema;
}

}  // namespace trireme
