// Configuration of the optimizer, of the offload of its states, of the learning-rate schedule and
// of the loss scale. Part of RunConfig (training/config/run_config.h).
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "engine/core/dtype.h"

namespace trireme {

// Formulas in optim/schedule.h. WSD: warm-up, stable, decay.
enum class DecayStyle { kConstant, kLinear, kCosine, kInverseSqrt, kWsd };
enum class WsdDecay { kLinear, kCosine, kExponential, kMinusSqrt };

class Optimizer;
std::shared_ptr<const Optimizer> default_optimizer();  // AdamW

struct OptimizerConfig {
  // Update rule and its hyper-parameters.
  std::shared_ptr<const Optimizer> rule = default_optimizer();
  double lr = 3e-4, weight_decay = 0.1;
  DType state_dtype = DType::kF32;  // dtype of the moments: float32 or bfloat16
  // Float32 copy of bfloat16 or float16 weights. Without it updates of bfloat16 weights are rounded
  // stochastically.
  bool master_weights = true;
};

// Storage of optimizer states between updates.
enum class OffloadDevice {
  kNone,  // memory of the compute device
  kCpu,   // host memory; the same as kNone if the CPU is the compute device
  kFile,  // file on a disk
};

struct OffloadConfig {
  OffloadDevice device = OffloadDevice::kNone;
  std::string path;                   // kFile: folder of the file
  int64_t buffer_count = 3;           // kFile: windows of the file held in memory, at least 2
  int64_t buffer_elements = 1 << 22;  // kFile: elements of each state per window
};

struct SchedulerConfig {
  DecayStyle style = DecayStyle::kCosine;
  int64_t warmup_steps = 0;
  bool log_warmup = false;  // logarithmic warm-up from 0, instead of a linear one
  // Rates as DeepSpeed computes them: WarmupLR (constant), WarmupDecayLR (linear), WarmupCosineLR
  // (cosine).
  bool deepspeed = false;
  // Step at which the decay ends, 0: the run's last; WSD: number of decay steps, 0: a tenth of the
  // run's.
  int64_t decay_steps = 0;
  double min_lr = 0.0;
  WsdDecay wsd_decay = WsdDecay::kLinear;
};

// Loss scale of float16 training. The dynamic scale starts at 2^initial_scale_power and doubles
// after `window` finite steps in a row. It halves, not below min_scale, at the `hysteresis`-th
// overflow since it last doubled and at every further one.
struct LossScaleConfig {
  double static_scale = 0.0;  // 0: dynamic
  int64_t initial_scale_power = 16, window = 1000, hysteresis = 2;
  double min_scale = 1.0;
};

}  // namespace trireme
