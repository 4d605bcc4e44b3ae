// Non-default value of each key of a run's configuration, and the assignments that it requires.
#pragma once

#include <string>
#include <vector>

#include "engine/config/schema.h"

namespace trireme::test {

// Valid value that is not the key's default; "": none, or the key is tested elsewhere.
inline std::string other_value(const Key& key) {
  if (key.path == "optimizer.params.betas") return "[0.8,0.9]";
  if (key.path == "optimizer.params.momentum" || key.path == "optimizer.params.nesterov") return "";
  if (key.path == "optimizer.params.freeze_step") return "";  // test_compression.cpp
  if (key.path == "optimizer.master_weights" || key.path == "scheduler.params.decay_style" ||
      key.path == "scheduler.params.cos_min_ratio")
    return "";  // valid only together with another key
  if (key.path == "scheduler.params.min_lr") return "0.0001";
  if (key.path == "scheduler.params.warmup_max_lr") return "0.0003";
  if (key.path == "scheduler.params.warmup_type") return "log";
  if (key.path == "sequence_length") return "32";
  if (key.path == "parallel.pipeline_schedule") return "gpipe";
  if (key.path == "parallel.order") return "cp-tp-dp-pp";
  if (key.path.starts_with("outer.")) return "";  // needs ranks: TEST(OuterConfig, ...)
  // Sizes need ranks; tested by TEST(RunConfig, Layouts) and TEST(TorchTitan, DegreesOfSharding).
  if (key.path == "parallelism.data_parallel_shard_degree") return "";
  if (key.path == "expert_parallel.enabled") return "";  // needs experts
  if (key.path.starts_with("parallel.") && key.kind == KeyKind::kInt) return "";
  if (key.path == "train_micro_batch_size_per_gpu") return "4";
  if (key.path == "gradient_accumulation_steps") return "3";
  if (key.path == "train_batch_size") return "24";
  if (key.path == "comm.bucket_size") return "4096";
  if (key.path == "zero_optimization.stage") return "3";
  if (key.path == "zero_optimization.zero_hpz_partition_size") return "";  // needs ranks
  if (key.path == "zero_optimization.offload_optimizer.buffer_size") return "8192";
  if (key.path == "zero_optimization.offload_optimizer.device") return "cpu";  // nvme needs a path
  if (key.path == "finetune.dpo.label_smoothing") return "0.25";
  if (key.path == "data.split") return "90,10";
  if (key.path.starts_with("compression.") && key.path.ends_with("bits")) return "4";
  if (key.path.starts_with("compression.") && key.path.ends_with("block")) return "16";
  if (key.path.starts_with("data.") && key.path.ends_with("_path")) return "";
  switch (key.kind) {
    case KeyKind::kBool: return key.default_json == "true" ? "false" : "true";
    case KeyKind::kInt: return "7";
    case KeyKind::kFloat: return "0.5";
    case KeyKind::kString: return "some/where";
    case KeyKind::kEnum: return key.values.back();
    case KeyKind::kAny: return "";
  }
  return "";
}

// Assignments that a key requires.
inline std::vector<std::string> companions(const Key& key) {
  std::vector<std::string> extra;
  if (key.path == "data.reset_position_ids" || key.path == "data.reset_attention_mask" ||
      key.path == "data.eod_mask_loss")
    extra = {"data.eod_token_id=0"};
  if (key.path == "scheduler.type")
    extra = {"scheduler.params.warmup_type=linear", "scheduler.params.warmup_steps=2"};
  if (key.path == "cuda.autotune") extra = {"deterministic=false"};
  if (key.path == "cuda.gemm_algorithms") extra = {"cuda.autotune=true", "deterministic=false"};
  if (key.path.starts_with("finetune."))
    extra = {"finetune.train_file=a.jsonl", "data.data_path=null", "data.tokenizer=byte",
             "checkpoint.load=base"};
  if (key.path.starts_with("finetune.lora.") && key.path != "finetune.lora.rank")
    extra.emplace_back("finetune.lora.rank=4");
  if (key.path == "finetune.quantization" || key.path == "finetune.double_quantization")
    extra.emplace_back("finetune.lora.rank=4");
  if (key.path == "finetune.double_quantization") extra.emplace_back("finetune.quantization=nf4");
  if (key.path.starts_with("finetune.dpo.")) extra.emplace_back("finetune.method=dpo");
  if (key.path == "zero_optimization.zero_quantized_weights") extra = {"zero_optimization.stage=3"};
  if (key.path.starts_with("compression.parameters.")) {
    extra = {"zero_optimization.stage=3"};
    if (!key.path.ends_with("method")) extra.emplace_back("compression.parameters.method=quantize");
  }
  if (key.path.starts_with("compression.gradients.") &&
      key.path != "compression.gradients.method") {
    const char* const method = key.path.ends_with("ratio")  ? "top_k"
                               : key.path.ends_with("rank") ? "powersgd"
                                                            : "quantize";
    extra = {std::string("compression.gradients.method=") + method};
  }
  if (key.path.starts_with("fp8.") && key.path != "fp8.enabled") extra = {"fp8.enabled=true"};
  return extra;
}

}  // namespace trireme::test
