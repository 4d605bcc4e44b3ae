// Times whole training steps of a model on random tokens: what `trireme bench train` prints.
#pragma once

#include <vector>

#include "engine/ops/peak.h"
#include "training/run_config.h"

namespace trireme {

struct BenchTrainOptions {
  ModelConfig model;
  DType dtype = DType::kF32;
  int64_t batch = 4;             // B
  int64_t sequence_length = 64;  // S
  int64_t steps = 10;            // timed, after two that are not
  int threads = 0;               // 0: all cores
  Recompute recompute = Recompute::kNone;
};

struct BenchTrainReport {
  int64_t parameters = 0;
  double median_ms = 0, least_ms = 0;
  double tokens_per_second = 0;      // by the median
  double gflops = 0;                 // by kFlopsFormula
  double gflops_full_attention = 0;  // 6 N + 12 L H D S, N all parameters: what others print
  MachinePeak peak;
  std::vector<std::pair<std::string, double>> shares;  // of the step, by category; sums to 1
  int64_t bytes = 0;                                   // parameters, gradients, states, activations
  int64_t resident_bytes = 0;        // anonymous memory in RAM after the steps, less that before
  int64_t allocations_in_steps = 0;  // engine allocator calls during the timed steps
  double loss = 0;                   // of the last step
};

BenchTrainReport bench_train(const BenchTrainOptions& options);

}  // namespace trireme
