// Keys of other frameworks that a run does not read, each with the reason. A key that is not listed
// here is an error, as an unknown key.
#include "training/config/deepspeed/keys.h"
#include "training/config/run_schema.h"

namespace trireme {
namespace {

void add_layouts(Schema& s) {
  s.refused("num_layers_per_virtual_pipeline_stage", {},
            "give parallel.virtual_pipeline_stages, the number of chunks per rank");
  for (const char* key : {"moe", "num_experts"})
    s.refused(key, {"0", "1"},
              "experts are described under \"model\", with HuggingFace's keys; "
              "parallel.expert_model_parallel_size divides them over ranks");
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
    s.refused(key, {}, "the model is described under \"model\", with HuggingFace's keys");
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
  s.unavailable("rampup_batch_size", {}, "batch size ramp-up");
  s.unavailable("qk_clip", {"false"}, "clipping of attention logits");
  s.unavailable("grad_reduce_in_bf16", {"false"}, "gradients reduced in less than fp32");
  s.unavailable("lr_warmup_init", {"0"}, "warm-up that does not start at 0");
  s.unavailable("checkpoint.async_save", {"false"}, "asynchronous saving").alias({"async_save"});
  s.no_effect("activation_checkpointing.modules",
              "selective always recomputes norms and MLP activations")
      .alias({"recompute_modules"});
  s.no_effect(
      "tensorboard_dir",
      "event files are in output_dir/tensorboard; logging.tensorboard.enabled switches them on");
  s.no_effect("distributed_backend", "comm.backend selects the communication of ranks");
  s.no_effect("tokenizer_type", "data.tokenizer names the tokenizer");
  s.no_effect("data.cache_path",
              "no index is built: the sample order is computed when it is needed")
      .alias({"data_cache_path"});
  s.no_effect("make_vocab_size_divisible_by", "the engine pads the vocabulary as its kernels need");
  for (const char* key : {"logging.log_throughput", "log_throughput", "logging.jsonl"})
    s.no_effect(key, "metrics.jsonl always has the throughput of each step");
  s.no_effect("ckpt_format", "there is one checkpoint format");
  s.no_effect("num_workers", "token files are mapped into memory");
}

}  // namespace

void add_foreign_keys(Schema& schema) {
  add_layouts(schema);
  add_deepspeed_keys(schema);
  add_megatron(schema);
}

}  // namespace trireme
