// What other frameworks' configurations say that is not a key of ours. A key stands here only with
// a reason; one without a row is an unknown key, and so an error.
#include "training/run_schema.h"

namespace trireme {
namespace {

void add_layouts(Schema& s) {
  s.refused("num_layers_per_virtual_pipeline_stage", {},
            "give parallel.virtual_pipeline_stages, the chunks on each rank");
  s.unavailable("parallelism.data_parallel_shard_degree", {"1"}, "sharded weights");
  s.unavailable("moe", {}, "mixture of experts");
  s.unavailable("num_experts", {"0", "1"}, "mixture of experts");
  s.unavailable("expert_parallel.enabled", {"false"}, "mixture of experts");
}

void add_zero(Schema& s) {
  const std::string prefix = "zero_optimization.";
  for (const char* key :
       {"contiguous_gradients", "reduce_scatter", "allgather_partitions", "allgather_bucket_size",
        "round_robin_gradients", "sub_group_size", "stage3_prefetch_bucket_size",
        "stage3_param_persistence_threshold", "stage3_max_live_parameters",
        "stage3_max_reuse_distance", "ignore_unused_parameters", "memory_efficient_linear"})
    s.no_effect(prefix + key, "what is divided is gathered and reduced block by block");
  for (const char* key : {"stage3_gather_16bit_weights_on_model_save", "elastic_checkpoint",
                          "load_from_fp32_weights"})
    s.no_effect(prefix + key, "every checkpoint loads into any layout and stage");
  for (const char* key : {"pin_memory", "pipeline_read", "pipeline_write", "fast_init"})
    s.no_effect(prefix + "offload_optimizer." + key,
                "reading ahead and writing behind are one loop");
  s.unavailable(prefix + "offload_optimizer.ratio", {"1"}, "a part of the state off the device");
  s.unavailable(prefix + "offload_param", {}, "weights off the device");
  s.unavailable(prefix + "zero_hpz_partition_size", {"1"}, "sharding inside a node");
  s.unavailable(prefix + "zero_quantized_weights", {"false"}, "compressed traffic");
  s.unavailable(prefix + "zero_quantized_gradients", {"false"}, "compressed traffic");
  s.unavailable(prefix + "mics_shard_size", {"-1"}, "sharding inside groups of ranks");
  s.no_effect("zero_allow_untested_optimizer", "every optimizer here is tested");
  s.no_effect("zero_force_ds_cpu_optimizer", "there is one optimizer for each type");
}

void add_deepspeed_training(Schema& s) {
  s.refused("prescale_gradients", {"false"},
            "the loss is normalised once, by the global count of "
            "tokens, so there is nothing to scale before reducing");
  s.refused("gradient_predivide_factor", {"1"}, "the loss is normalised once, before backward");
  s.unavailable("communication_data_type", {"\"fp32\""}, "gradients reduced in less than fp32");
  s.unavailable("data_types.grad_accum_dtype", {"\"fp32\""}, "gradients summed in less than fp32")
      .alias({"grad_reduce_in_bf16"});
  s.unavailable("sparse_gradients", {"false"}, "sparse gradients of the embedding");
  s.unavailable("fp16.auto_cast", {"false"}, "casts decided per operation");
  s.unavailable("fp16.fp16_master_weights_and_grads", {"false"},
                "fp16 without fp32 master weights");
  s.refused("bf16.bf16_master_weights_and_grads", {"false"},
            "write optimizer.master_weights: false");
  s.refused("bf16.bf16_optimizer_states", {"false"}, "write optimizer.state_dtype: \"bf16\"");
  for (const char* key : {"bf16.immediate_grad_update", "bf16.check_grad_overflow"})
    s.no_effect(key, "gradients are summed in place, and every step is checked");
  s.unavailable("fp16.consecutive_hysteresis", {"false"}, "hysteresis restored by each good step");
  s.unavailable("optimizer.params.amsgrad", {"false"}, "AMSGrad");
  s.unavailable("optimizer.params.bias_correction", {"true"}, "Adam without bias correction");
  for (const char* key : {"optimizer.params.torch_adam", "optimizer.params.fused",
                          "optimizer.params.foreach", "optimizer.params.freeze_step"})
    s.no_effect(key, "the update is one fused pass over the flat state");
  s.unavailable("optimizer.legacy_fusion", {"false"}, "DeepSpeed's old fused optimizer");
  s.unavailable("scheduler.params.warmup_min_lr", {"0"}, "warm-up that does not start at 0")
      .alias({"lr_warmup_init", "scheduler.params.warmup_min_ratio"});
  s.unavailable("scheduler.params.last_batch_iteration", {"-1"}, "a schedule begun elsewhere");
}

void add_deepspeed_rest(Schema& s) {
  for (const char* key :
       {"amp", "elasticity", "autotuning", "compression_training", "data_efficiency",
        "curriculum_learning", "sparse_attention", "hybrid_engine", "progressive_layer_drop",
        "eigenvalue", "quantize_training", "nebula", "wandb", "comet", "csv_monitor",
        "weight_quantization", "compile", "zenflow"})
    s.unavailable(key, {"false"}, "a part of DeepSpeed without a counterpart here yet");
  const std::string section = "activation_checkpointing.";
  s.unavailable(section + "partition_activations", {"false"}, "saved activations split over ranks");
  s.unavailable(section + "cpu_checkpointing", {"false"}, "saved activations off the device");
  s.no_effect(section + "modules", "selective computes norms and MLP activations again")
      .alias({"recompute_modules"});
  for (const char* key : {"contiguous_memory_optimization", "number_checkpoints",
                          "synchronize_checkpoint_boundary", "profile"})
    s.no_effect(section + key, "activations lie in a planned arena");
  for (const char* key :
       {"wall_clock_breakdown", "dump_state", "memory_breakdown", "flops_profiler", "comms_logger"})
    s.no_effect(key, "times, rates and bytes of each step are in metrics.jsonl");
  for (const char* key : {"tensorboard.output_path", "tensorboard.job_name", "tensorboard_dir"})
    s.no_effect(key,
                "event files lie in output_dir/tensorboard; logging.tensorboard.enabled switches "
                "them on");
  s.no_effect("checkpoint.load_universal", "every checkpoint loads into any number of ranks");
  for (const char* key : {"checkpoint.tag_validation", "checkpoint.parallel_write",
                          "checkpoint.use_node_local_storage"})
    s.no_effect(key, "one manifest describes the whole checkpoint");
  s.unavailable("checkpoint.async_save", {"false"}, "saving while training goes on")
      .alias({"async_save"});
  s.no_effect("aio", "zero_optimization.offload_optimizer says how states travel to a disk");
  s.no_effect("dataloader_drop_last", "sequences are cut from one endless stream");
}

void add_megatron(Schema& s) {
  for (const char* key : {"num_layers",
                          "hidden_size",
                          "ffn_hidden_size",
                          "num_attention_heads",
                          "num_query_groups",
                          "group_query_attention",
                          "kv_channels",
                          "max_position_embeddings",
                          "position_embedding_type",
                          "rotary_base",
                          "rotary_percent",
                          "normalization",
                          "norm_epsilon",
                          "swiglu",
                          "disable_bias_linear",
                          "add_qkv_bias",
                          "untie_embeddings_and_output_weights",
                          "qk_layernorm",
                          "hidden_dropout",
                          "attention_dropout",
                          "vocab_size",
                          "padded_vocab_size",
                          "init_method_std"})
    s.refused(key, {}, "the model is described under \"model\", in HuggingFace's words");
  s.refused("multiple_validation_sets", {"false"},
            "name the sets: data.valid_data_path: {\"wiki\": path, \"code\": path}");
  s.refused("load_in_4bit", {"false"}, "write finetune.quantization: \"nf4\"");
  s.refused("quantization_bit", {}, "write finetune.quantization: \"nf4\"");
  s.refused("train_samples", {}, "give train_steps (samples / train_batch_size)");
  s.refused("lr_warmup_fraction", {}, "give scheduler.params.warmup_steps");
  s.refused("initial_loss_scale", {}, "give fp16.initial_scale_power, its base-2 logarithm");
  s.refused("distributed_timeout_minutes", {}, "give comm.timeout, in seconds");
  s.refused("recompute_activations", {"false"},
            "write activation_checkpointing.granularity: \"selective\"");
  s.unavailable("rampup_batch_size", {}, "a batch size that grows");
  s.unavailable("qk_clip", {"false"}, "clipping of attention logits");
  s.no_effect("distributed_backend", "comm.backend says how ranks talk");
  s.no_effect("tokenizer_type", "data.tokenizer says which tokenizer");
  s.no_effect("data.cache_path", "no index is built: order follows from a closed form")
      .alias({"data_cache_path"});
  s.no_effect("make_vocab_size_divisible_by", "the engine pads the vocabulary as its kernels need");
  for (const char* key : {"logging.log_throughput", "log_throughput", "logging.jsonl"})
    s.no_effect(key, "metrics.jsonl always holds the throughput of each step");
  s.no_effect("ckpt_format", "there is one checkpoint format");
  s.no_effect("num_workers", "token files are mapped into memory");
}

}  // namespace

void add_foreign_keys(Schema& schema) {
  add_layouts(schema);
  add_zero(schema);
  add_deepspeed_training(schema);
  add_deepspeed_rest(schema);
  add_megatron(schema);
}

}  // namespace trireme
