#include "training/config/deepspeed/keys.h"

#include <algorithm>
#include <utility>

#include "engine/core/error.h"
#include "training/config/run_config.h"
#include "transformer/formats/model_keys.h"

namespace trireme {
namespace {

// Adds DeepSpeed's keys to a schema. The value "auto", which HuggingFace's Trainer replaces before
// DeepSpeed reads the file, counts as a missing key.
class DeepSpeedRows {
 public:
  explicit DeepSpeedRows(Schema& schema) : schema_(schema) {}

  void no_effect(const std::string& section, std::initializer_list<const char*> names,
                 const char* reason) {
    for (const char* name : names)
      schema_.no_effect(join_path(section, name), reason).auto_as_default();
  }
  void refused(const std::string& path, std::vector<std::string> accepted, const char* reason) {
    schema_.refused(path, std::move(accepted), reason).auto_as_default();
  }
  void refused_each(const std::string& section, std::initializer_list<const char*> names,
                    const char* reason) {
    for (const char* name : names) refused(join_path(section, name), {}, reason);
  }
  void unavailable(const std::string& path, std::vector<std::string> accepted, const char* what) {
    schema_.unavailable(path, std::move(accepted), what).auto_as_default();
  }

 private:
  Schema& schema_;
};

constexpr const char* kBlockByBlock =
    "sharded tensors are gathered and reduced one transformer block at a time";
constexpr const char* kAnyLayout = "every checkpoint loads into any layout and stage";

void add_batch_rows(DeepSpeedRows& rows) {
  rows.no_effect("", {"managed_gradient_accumulation"},
                 "a step is always gradient_accumulation_steps forward passes");
  rows.no_effect("", {"dataloader_drop_last"}, "sequences are cut from one endless stream");
  rows.no_effect("", {"zero_allow_untested_optimizer"}, "every optimizer here is tested");
  rows.no_effect("", {"zero_force_ds_cpu_optimizer"}, "each optimizer.type has one implementation");
  rows.no_effect("", {"use_data_before_expert_parallelism"},
                 "parallel.order determines which ranks are neighbours");
  rows.no_effect("", {"disable_allgather", "graph_harvesting", "compile"},
                 "it changes how steps run, not what they compute");
}

void add_gradient_rows(DeepSpeedRows& rows) {
  rows.no_effect(
      "", {"prescale_gradients", "gradient_predivide_factor"},
      "gradients are summed in fp32 and divided once, by the global token count, so that "
      "no scaling is needed");
  rows.refused("gradient_allreduce_op", {"\"mean\""},
               "the gradient is always that of the mean loss over all tokens of a step");
  for (const char* name : {"communication_data_type", "seq_parallel_communication_data_type"})
    rows.unavailable(name, {"\"fp32\""}, "gradients reduced in less than fp32");
  rows.unavailable("data_types.grad_accum_dtype", {"\"fp32\""},
                   "gradients summed in less than fp32");
  rows.refused("data_types.param_dtype", {}, "write bf16.enabled or fp16.enabled");
  rows.unavailable("data_types.buffer_dtype", {"\"fp32\""}, "buffers in less than fp32");
  rows.unavailable("sparse_gradients", {"false"}, "sparse gradients of the embedding");
}

void add_precision_rows(DeepSpeedRows& rows) {
  rows.unavailable("fp16.auto_cast", {"false"}, "automatic casts per operation");
  rows.unavailable("fp16.fp16_master_weights_and_grads", {"false"},
                   "fp16 without fp32 master weights");
  rows.unavailable("fp16.consecutive_hysteresis", {"false"},
                   "hysteresis that is reset by each finite step");
  rows.no_effect("fp16", {"opt_level"}, "it is an option of apex, which fp16 does not use");
  rows.refused("bf16.bf16_master_weights_and_grads", {"false"},
               "write optimizer.master_weights: false");
  rows.refused("bf16.bf16_optimizer_states", {"false"}, "write optimizer.state_dtype: \"bf16\"");
  rows.no_effect("bf16", {"immediate_grad_update", "check_grad_overflow"},
                 "gradients are summed in place, and every step is checked");
  rows.no_effect(
      "bf16",
      {"loss_scale", "loss_scale_window", "initial_scale_power", "hysteresis", "min_loss_scale"},
      "bfloat16 needs no loss scale");
  for (const char* section : {"amp", "torch_autocast"})
    rows.refused(section, {"false"}, "write bf16.enabled or fp16.enabled");
}

void add_optimizer_rows(DeepSpeedRows& rows) {
  const std::string params = "optimizer.params";
  rows.unavailable(params + ".amsgrad", {"false"}, "AMSGrad");
  rows.unavailable(params + ".bias_correction", {"true"}, "Adam without bias correction");
  rows.unavailable(params + ".dampening", {"0"}, "SGD with dampening");
  rows.unavailable(params + ".maximize", {"false"}, "maximizing the objective");
  rows.no_effect(params,
                 {"torch_adam", "fused", "foreach", "capturable", "differentiable", "set_grad_none",
                  "fp32_optimizer_states", "cuda_aware", "comm_backend_name"},
                 "the update is one fused pass over the flat state");
  rows.refused(params + ".max_grad_norm", {"0"}, "write gradient_clipping");
  rows.refused_each(params,
                    {"var_freeze_step", "var_update_scaler", "local_step_scaler",
                     "local_step_clipper", "max_coeff", "min_coeff", "coeff_beta", "factor_max",
                     "factor_min", "factor_threshold", "muon_lr", "adam_lr", "ns_method"},
                    "it is a parameter of 0/1 Adam, Lamb or Muon, which are not available");
  rows.unavailable("optimizer.legacy_fusion", {"false"}, "DeepSpeed's old fused optimizer");
}

void add_scheduler_rows(DeepSpeedRows& rows) {
  const std::string params = "scheduler.params";
  for (const char* name : {".warmup_min_lr", ".warmup_min_ratio"})
    rows.unavailable(params + name, {"0"}, "warm-up that does not start at 0");
  rows.unavailable(params + ".last_batch_iteration", {"-1"},
                   "a schedule that starts at a later step");
  rows.refused_each(params,
                    {"lr_range_test_min_lr", "lr_range_test_step_rate", "lr_range_test_step_size",
                     "lr_range_test_staircase", "cycle_first_step_size", "cycle_first_stair_count",
                     "cycle_second_step_size", "cycle_second_stair_count", "decay_step_size",
                     "cycle_min_lr", "cycle_max_lr", "decay_lr_rate", "cycle_min_mom",
                     "cycle_max_mom", "decay_mom_rate", "cycle_momentum"},
                    "it is a parameter of OneCycle or LRRangeTest, which are not available");
}

void add_zero_rows(DeepSpeedRows& rows) {
  const std::string zero = "zero_optimization";
  rows.no_effect(zero,
                 {"contiguous_gradients",
                  "reduce_scatter",
                  "use_multi_rank_bucket_allreduce",
                  "allgather_partitions",
                  "allgather_bucket_size",
                  "round_robin_gradients",
                  "sub_group_size",
                  "grad_hooks",
                  "legacy_stage1",
                  "stage3_prefetch_bucket_size",
                  "prefetch_bucket_size",
                  "stage3_param_persistence_threshold",
                  "param_persistence_threshold",
                  "stage3_model_persistence_threshold",
                  "model_persistence_threshold",
                  "stage3_max_live_parameters",
                  "max_live_parameters",
                  "stage3_max_reuse_distance",
                  "max_reuse_distance",
                  "stage3_module_granularity_threshold",
                  "module_granularity_threshold",
                  "stage3_use_all_reduce_for_fetch_params",
                  "use_all_reduce_for_fetch_params",
                  "stage3_allgather_sequential",
                  "allgather_sequential",
                  "ignore_unused_parameters",
                  "memory_efficient_linear",
                  "override_module_apply",
                  "leaf_module",
                  "enable_sanity_checks",
                  "log_trace_cache_warnings",
                  "save_muon_momentum_buffer_in_memory"},
                 kBlockByBlock);
  rows.no_effect(zero,
                 {"stage3_gather_16bit_weights_on_model_save", "gather_16bit_weights_on_model_save",
                  "stage3_gather_fp16_weights_on_model_save", "elastic_checkpoint",
                  "load_from_fp32_weights", "pipeline_loading_checkpoint"},
                 kAnyLayout);
  for (const char* name : {".zero_quantized_gradients", ".zeropp_loco_param"})
    rows.refused(zero + name, {"false"},
                 "stage 3 sums gradients exactly; write compression.gradients with "
                 "zero_optimization.stage 0 or 1");
  rows.refused(zero + ".zero_quantized_nontrainable_weights", {"false"},
               "to store frozen weights in fewer bits, write finetune.quantization: \"nf4\"; "
               "zero_optimization.zero_quantized_weights quantizes only what ranks send");
  rows.unavailable(zero + ".mics_shard_size", {"-1"}, "sharding within groups of ranks");
  rows.unavailable(zero + ".mics_hierarchical_params_gather", {"false"},
                   "sharding within groups of ranks");
  for (const char* name : {"zenflow", "zero_optimization.zenflow"})
    rows.unavailable(name, {"false"}, "asynchronous updates with a part of the gradient");
}

void add_offload_rows(DeepSpeedRows& rows) {
  const std::string zero = "zero_optimization";
  rows.no_effect(zero + ".offload_optimizer",
                 {"pin_memory", "pipeline_read", "pipeline_write", "pipeline", "fast_init",
                  "super_offload", "cpuadam_cores_perc"},
                 "states are always prefetched and written back asynchronously");
  rows.unavailable(zero + ".offload_optimizer.ratio", {"1"},
                   "offload of a part of the optimizer state");
  rows.no_effect(zero + ".offload_param",
                 {"nvme_path", "buffer_count", "buffer_size", "max_in_cpu", "pin_memory"},
                 "weights stay in the memory of the compute device");
  rows.refused(zero + ".cpu_offload", {"false"},
               "write zero_optimization.offload_optimizer: {\"device\": \"cpu\"}");
  for (const char* name : {".cpu_offload_param", ".cpu_offload_params"})
    rows.refused(zero + name, {"false"},
                 "write zero_optimization.offload_param: {\"device\": \"cpu\"}");
  rows.no_effect(zero, {"cpu_offload_use_pin_memory"},
                 "states are always prefetched and written back asynchronously");
  rows.no_effect("", {"aio"},
                 "zero_optimization.offload_optimizer configures the state file on a disk");
}

void add_parallel_rows(DeepSpeedRows& rows) {
  rows.no_effect("tensor_parallel",
                 {"preset_model", "partition_config", "injection_policy_tuple", "tp_overlap_comm",
                  "keep_module_on_host", "replace_with_kernel_inject", "kernel_inject", "dtype",
                  "tp_grain_size"},
                 "the model's family determines how matrices are split; parallel.tp_comm_overlap "
                 "controls overlap");
  rows.refused_each("tensor_parallel", {"tp", "tp_size"}, "write tensor_parallel.autotp_size");
  rows.no_effect(
      "expert_parallel",
      {"preset_model", "moe_layer_pattern", "router_pattern", "expert_pattern", "expert_w1",
       "expert_w2", "expert_w3", "num_experts_attr", "top_k_attr", "has_shared_experts",
       "shared_experts_pattern", "shared_experts_gate_pattern", "use_grouped_mm",
       "disable_triton_grouped_mm", "combine_impl", "validate_folding_routing"},
      "the model's family determines its experts' parameters and computation");
  rows.refused_each("expert_parallel",
                    {"score_func", "score_apply", "route_norm", "top_k", "routed_scaling_factor",
                     "num_expert_groups", "num_limited_groups", "load_balance_coeff"},
                    "the model's config.json determines how tokens are routed");
  rows.refused("expert_parallel.route_scale", {"1"},
               "the model's config.json determines how tokens are routed");
  rows.no_effect("pipeline",
                 {"partition", "seed_layers", "activation_checkpoint_interval", "pipe_partitioned",
                  "grad_partitioned", "use_reentrant"},
                 "parallel.pipeline_layout divides the layers; "
                 "activation_checkpointing.granularity selects what is recomputed");
  rows.no_effect("activation_checkpointing", {"partition_activations", "cpu_checkpointing"},
                 "it only saves memory; activation_checkpointing.granularity reduces the memory of "
                 "a rank, which --validate prints");
  rows.no_effect("activation_checkpointing",
                 {"contiguous_memory_optimization", "number_checkpoints",
                  "synchronize_checkpoint_boundary", "profile"},
                 "activations are in one arena, planned before the run");
}

void add_monitor_rows(DeepSpeedRows& rows) {
  rows.no_effect("",
                 {"wall_clock_breakdown", "memory_breakdown", "dump_state", "flops_profiler",
                  "comms_logger", "comms_config", "timers", "log_level"},
                 "times, rates and bytes of each step are in metrics.jsonl");
  rows.no_effect("", {"wandb", "comet", "csv_monitor", "monitor_config"},
                 "metrics.jsonl has every number of each step, and tensorboard.enabled adds event "
                 "files");
  rows.no_effect(
      "tensorboard", {"output_path", "job_name"},
      "event files are in output_dir/tensorboard; logging.tensorboard.enabled switches them on");
}

void add_checkpoint_rows(DeepSpeedRows& rows) {
  rows.no_effect("checkpoint", {"load_universal"},
                 "every checkpoint loads into any number of ranks");
  rows.no_effect("checkpoint",
                 {"tag_validation", "parallel_write", "use_node_local_storage",
                  "checkpoint_serialization", "writer"},
                 "one manifest describes the whole checkpoint");
  for (const char* section : {"nebula", "datastates"})
    rows.unavailable(section, {"false"}, "a separate checkpoint service");
}

void add_technique_rows(DeepSpeedRows& rows) {
  const std::pair<const char*, const char*> techniques[] = {
      {"elasticity", "batch sizes that adapt to the number of ranks"},
      {"autotuning", "a search for the fastest configuration"},
      {"compression_training", "quantization and pruning during training"},
      {"quantize_training", "quantization during training"},
      {"weight_quantization", "quantization during training"},
      {"data_efficiency", "curriculum learning and random token dropping"},
      {"curriculum_learning", "a curriculum of sequence lengths"},
      {"progressive_layer_drop", "random dropping of layers"},
      {"eigenvalue", "eigenvalues of the Hessian"},
      {"sparse_attention", "sparse attention"},
      {"hybrid_engine", "alternating training and generation"},
  };
  for (const auto& [section, what] : techniques) rows.unavailable(section, {"false"}, what);
}

constexpr const char* kPageHead =
    "# Keys of a DeepSpeed configuration\n\nMade by `trireme config deepspeed-keys`. A run names a "
    "DeepSpeed file, which needs no change, by a path relative to its own\nconfiguration, or on "
    "the command line relative to the current directory:\n\n    {\"model\": \"model.json\", "
    "\"output_dir\": \"run\", \"deepspeed\": \"ds_z3.json\", ...}\n    trireme pretrain --config "
    "run.json --deepspeed ds_z3.json\n\nA DeepSpeed file may also be the `--config` itself, if "
    "flags give the rest (`--model`, `--output-dir`, ...).\n\n- The run's own keys, in its file or "
    "as flags, override the DeepSpeed file. A note names each key that both set to\n  different "
    "values. If the run sets another `optimizer.type`, `scheduler.type` or precision, the file's "
    "section is\n  ignored; if it sets two of the three batch sizes, the file's third size is "
    "ignored.\n- `\"auto\"` counts as absent: the run's own value applies, else the default of "
    "the\n  [reference](config-reference.md), not HuggingFace's. A key in neither file has that "
    "default too: weight\n  decay 0.1, betas [0.9, 0.95] and gradients clipped at 1, where "
    "DeepSpeed has 0, [0.9, 0.999] and no clipping.\n- Values mean what they mean in DeepSpeed. "
    "`Adam` is AdamW unless `adam_w_mode` is false. `WarmupLR`,\n  `WarmupDecayLR` and "
    "`WarmupCosineLR` have a logarithmic warm-up, unless `warmup_type` is `\"linear\"`, over "
    "1000\n  steps, unless `warmup_num_steps` is given. `warmup_max_lr` is the learning rate; a "
    "WarmupDecayLR without it has\n  0.001. Update k has the rate of DeepSpeed's class after k "
    "calls of its step(). DeepSpeed's own first update comes\n  before the first call, so that its "
    "update k + 1 has the rate of update k here.\n- An unknown key, a wrong type and a refused "
    "value are errors, all reported at once. A key without effect is\n  noted once, unless it is "
    "false, null or `\"auto\"`. `null` counts as absent, and so does a section that\n  is not "
    "enabled.\n\n";

// Names in a DeepSpeed file that a run's schema reads, in the order of the page.
std::vector<std::string> deepspeed_names_read() {
  std::vector<std::string> names = {
      "train_batch_size",
      "train_micro_batch_size_per_gpu",
      "gradient_accumulation_steps",
      "gradient_clipping",
      "sequence_parallel_size",
      "steps_per_print",
      "tensorboard.enabled",
      "bf16.enabled",
      "bfloat16.enabled",
      "fp16.enabled",
      "fp16.loss_scale",
      "fp16.initial_scale_power",
      "fp16.loss_scale_window",
      "fp16.hysteresis",
      "fp16.min_loss_scale",
      "optimizer.type",
      "scheduler.type",
      "scheduler.params.warmup_num_steps",
      "scheduler.params.warmup_max_lr",
      "scheduler.params.warmup_type",
      "scheduler.params.total_num_steps",
      "scheduler.params.cos_min_ratio",
      "zero_optimization.stage",
      "zero_optimization.zero_quantized_weights",
      "zero_optimization.zero_hpz_partition_size",
      "zero_optimization.overlap_comm",
      "zero_optimization.reduce_bucket_size",
      "zero_optimization.offload_optimizer.device",
      "zero_optimization.offload_optimizer.nvme_path",
      "zero_optimization.offload_optimizer.buffer_count",
      "zero_optimization.offload_optimizer.buffer_size",
      "zero_optimization.offload_param.device",
      "tensor_parallel.autotp_size",
      "expert_parallel.enabled",
      "expert_parallel.autoep_size",
      "expert_parallel.expert_tensor_parallel_size",
      "pipeline.stages",
  };
  std::vector<std::string> params;  // DeepSpeed's names equal ours
  for (const Key& key : run_schema().keys())
    if (key.status == KeyStatus::kImplemented && key.path.starts_with("optimizer.params."))
      params.push_back(key.path);
  names.insert(std::ranges::find(names, "optimizer.type") + 1, params.begin(), params.end());
  return names;
}

}  // namespace

void add_deepspeed_keys(Schema& schema) {
  DeepSpeedRows rows(schema);
  add_batch_rows(rows);
  add_gradient_rows(rows);
  add_precision_rows(rows);
  add_optimizer_rows(rows);
  add_scheduler_rows(rows);
  add_zero_rows(rows);
  add_offload_rows(rows);
  add_parallel_rows(rows);
  add_monitor_rows(rows);
  add_checkpoint_rows(rows);
  add_technique_rows(rows);
}

const Schema& deepspeed_schema() {
  static const Schema schema = [] {
    Schema s("DeepSpeed configuration");
    for (const std::string& name : deepspeed_names_read()) {
      const Key* const ours = run_schema().find_any(name);
      TRIREME_CHECK(ours != nullptr && ours->status == KeyStatus::kImplemented, name,
                    " is not read by a run");
      Key key = *ours;
      key.path = name;
      key.aliases.clear();
      key.allows_auto = key.allows_null = true;
      key.auto_means_default = key.is_required = false;
      if (key.path == "tensor_parallel.autotp_size") key.min = 0;  // 0: off
      s.row(std::move(key));
    }
    add_deepspeed_keys(s);
    s.finish();
    return s;
  }();
  return schema;
}

std::string deepspeed_keys_page() {
  std::vector<KeyRow> read, without_effect, refused;
  for (const Key& key : deepspeed_schema().keys()) {
    KeyRow row = key_row(key);
    if (key.status == KeyStatus::kImplemented) {
      const std::string& ours = run_schema().find_any(key.path)->path;
      row.effect = concat(ours == key.path ? "" : concat("`", ours, "`: "), key.help);
      read.push_back(std::move(row));
    } else if (key.status == KeyStatus::kNoEffect) {
      row.effect = key.help;
      without_effect.push_back(std::move(row));
    } else {
      refused.push_back(std::move(row));
    }
  }
  std::string page =
      concat(kPageHead, "## Read\n\n", key_table(read, ""), "## Without effect\n\n",
             key_table(without_effect, ""), "## Refused\n\n", key_table(refused, ""));
  page.pop_back();
  return page;
}

}  // namespace trireme
