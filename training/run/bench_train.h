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
  Float8Config float8 = {};         // matrix products of linear layers
  int64_t batch = 4;                // B, sequences of a micro-batch
  int64_t sequence_length = 64;     // S, tokens
  int64_t steps = 10;               // timed steps, after two warm-up steps
  // n, micro-batches of a timed step. If n > 1, steps of 1 and of n micro-batches are timed, and
  //   micro-batch = (T_n - T_1) / (n - 1), update = T_1 - micro-batch,
  // from which the time of a step of `step_tokens` is derived. The update is the gradient norm, the
  // decision, the optimizer, and the wait for the step's loss. If noise makes the difference 0 or
  // less, micro-batch = T_n / n.
  int64_t micro_batches = 1;
  int64_t step_tokens = 524'288;
  bool whole_step = false;  // also time one step of `step_tokens`, after two warm-up steps
  int threads = 0;          // 0: all cores
  Recompute recompute = Recompute::kNone;
  int64_t peak_side = kPeakSide;  // side of the square matrices that measure a GPU's peak
  // GPU only.
  bool deterministic = true;
  bool autotune = false;      // Context::autotune
  bool launch_times = false;  // also time each kernel of one step of one micro-batch
};

struct BenchTrainReport {
  int64_t parameters = 0;
  // Time of a step of one micro-batch. CPU: median and minimum; GPU: mean.
  double median_ms = 0, least_ms = 0, mean_ms = 0;
  double micro_ms = 0, update_ms = 0;  // 0: not requested
  int64_t step_micro_batches = 1;      // micro-batches of the step of step_ms
  double step_ms = 0;                  // derived (see micro_batches); if n = 1: measured
  double whole_step_ms = 0;            // measured; 0: not requested
  double tokens_per_second = 0;        // from step_ms
  double gflops = 0;  // GFLOP/s by kFlopsFormula (transformer/model/flops.h), from step_ms
  // GFLOP/s by the common formula: per token 6 N + 12 L H D S, for N parameters, L layers, H heads
  // of width D and sequences of S tokens.
  double gflops_full_attention = 0;
  MachinePeak peak;        // peak of the CPU
  DevicePeak device_peak;  // peak of the GPU
  // CPU: fractions of the step's time by category; they sum to 1.
  std::vector<std::pair<std::string, double>> shares;
  int64_t bytes = 0;           // planned: parameters, gradients, optimizer states, activations
  int64_t resident_bytes = 0;  // CPU: growth of resident anonymous memory over the benchmark
  int64_t device_bytes = 0;    // GPU: memory in use after the steps, including other processes
  int64_t allocations_in_steps = 0;  // engine allocator calls during the timed steps
  int64_t launches = 0;              // GPU: kernels and library calls per micro-batch
  bool deterministic = true;
  std::vector<cuda::LaunchTime> launch_times;  // if requested
  double loss = 0;                             // of the last step
};

// Runs the benchmark. world: of one rank. gpu: nullptr: the CPU.
BenchTrainReport bench_train(const BenchTrainOptions& options, World& world, cuda::Context* gpu);

}  // namespace trireme
