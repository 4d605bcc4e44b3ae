// Timing of training steps on random tokens, for `trireme bench train`.
#pragma once

#include <vector>

#include "engine/device/launch_times.h"
#include "engine/ops/gemm/device_peak.h"
#include "engine/ops/gemm/peak.h"
#include "training/config/run_config.h"

namespace trireme {

class World;

struct BenchTrainOptions {
  ModelConfig model;
  DType dtype = DType::kF32;
  DType state_dtype = DType::kF32;  // optimizer.state_dtype
  Float8Config float8 = {};         // products of linear layers
  int64_t batch = 4;                // B, sequences of a micro-batch
  int64_t sequence_length = 64;     // S
  int64_t steps = 10;               // timed, after two warm-up steps
  // 1: the timed step has one micro-batch. More: steps of one and of n micro-batches are timed, and
  //   micro-batch = (T_n - T_1) / (n - 1), update = T_1 - micro-batch,
  // from which a step of `step_tokens` is derived. Update: norm, decision, optimizer, and the
  // step's one wait for its loss. If timings are too noisy for that difference, everything counts
  // as micro-batch.
  int64_t micro_batches = 1;
  int64_t step_tokens = 524'288;
  bool whole_step = false;  // also run one step of `step_tokens`, after two warm-up steps
  int threads = 0;          // 0: all cores
  Recompute recompute = Recompute::kNone;
  int64_t peak_side = kPeakSide;  // of the products that determine a GPU's ceiling
  // GPU only.
  bool deterministic = true;
  bool autotune = false;      // Context::autotune
  bool launch_times = false;  // also time each call of one step of one micro-batch
};

struct BenchTrainReport {
  int64_t parameters = 0;
  // Step of one micro-batch. CPU: median and minimum; GPU: mean.
  double median_ms = 0, least_ms = 0, mean_ms = 0;
  double micro_ms = 0, update_ms = 0;  // 0: not requested
  int64_t step_micro_batches = 1;      // of the step that tokens_per_second refers to
  double step_ms = 0;                  // derived; with one micro-batch: measured
  double whole_step_ms = 0;            // measured; 0: not requested
  double tokens_per_second = 0;        // from step_ms
  double gflops = 0;                   // by kFlopsFormula
  double gflops_full_attention = 0;    // 6 N + 12 L H D S, N all parameters: the common formula
  MachinePeak peak;                    // of the CPU
  DevicePeak device_peak;              // of the GPU
  std::vector<std::pair<std::string, double>> shares;  // of a CPU's step, by category; sum to 1
  int64_t bytes = 0;           // parameters, gradients, states, activations, as planned
  int64_t resident_bytes = 0;  // CPU: anonymous memory in RAM after the steps, less that before
  int64_t device_bytes = 0;    // GPU: memory in use after the steps, by everything
  int64_t allocations_in_steps = 0;  // engine allocator calls during the timed steps
  int64_t launches = 0;              // GPU: kernels and library calls of a micro-batch
  bool deterministic = true;
  std::vector<cuda::LaunchTime> launch_times;  // if requested
  double loss = 0;                             // of the last step
};

// Runs on a world of one rank. gpu: nullptr for the CPU.
BenchTrainReport bench_train(const BenchTrainOptions& options, World& world, cuda::Context* gpu);

}  // namespace trireme
