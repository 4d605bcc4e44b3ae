// Configuration of optimizer, offload, schedule and loss scale; part of RunConfig
// (training/config/run_config.h).
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "engine/core/dtype.h"

namespace trireme {

enum class DecayStyle { kConstant, kLinear, kCosine, kInverseSqrt, kWsd };
enum class WsdDecay { kLinear, kCosine, kExponential, kMinusSqrt };

class Optimizer;
std::shared_ptr<const Optimizer> default_optimizer();  // AdamW

struct OptimizerConfig {
  std::shared_ptr<const Optimizer> rule = default_optimizer();  // with its hyper-parameters
  double lr = 3e-4, weight_decay = 0.1;
  DType state_dtype = DType::kF32;  // of the moments: float32 or bfloat16
  bool master_weights = true;       // false with bf16: stochastic rounding
};

// Storage of optimizer states between updates.
enum class OffloadDevice {
  kNone,  // in the same memory as the parameters
  kCpu,   // in host memory; no difference when computing on the CPU
  kFile,  // in a file
};

struct OffloadConfig {
  OffloadDevice device = OffloadDevice::kNone;
  std::string path;                   // kFile: the folder
  int64_t buffer_count = 3;           // kFile: windows of the file in memory, at least 2
  int64_t buffer_elements = 1 << 22;  // of each state in a window
};

struct SchedulerConfig {
  DecayStyle style = DecayStyle::kCosine;
  int64_t warmup_steps = 0;
  bool log_warmup = false;  // logarithmic instead of linear, from 0
  // The rates of DeepSpeed's class for the style: WarmupLR, WarmupDecayLR or WarmupCosineLR.
  bool deepspeed = false;
  int64_t decay_steps = 0;  // step at which the decay ends; WSD: length of the decay
  double min_lr = 0.0;
  WsdDecay wsd_decay = WsdDecay::kLinear;
};

struct LossScaleConfig {      // fp16 only
  double static_scale = 0.0;  // 0: dynamic
  int64_t initial_scale_power = 16, window = 1000, hysteresis = 2;
  double min_scale = 1.0;
};

}  // namespace trireme
