// Metrics of a training step: one record for metrics.jsonl, the console line, the progress bar and
// TensorBoard (docs/reference/metrics.md).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace trireme {

// Outer rounds that ended after a step (parallel/outer/outer_sync.h).
struct RoundMetrics {
  double ms = 0;           // wall time of this rank since the rounds before
  int64_t sent_bytes = 0;  // by this rank to other sites
  double update_norm = 0;  // of the mean update
  double drift = 0;        // root of the mean squared distance of the sites' updates to their mean
};

struct StepMetrics {
  int64_t step = 0;               // 1 after the first optimizer step
  int64_t train_steps = 0;        // planned
  int64_t consumed_samples = 0;   // sequences since the start of the run
  int64_t global_batch_size = 0;  // sequences of this step
  int64_t tokens = 0;             // tokens of this step over all ranks
  int64_t consumed_tokens = 0;    // since the start of the run
  double loss = 0;                // nats per valid token
  double grad_norm = 0;           // global L2 norm before clipping
  double lr = 0;                  // learning rate of this step
  double loss_scale = 1;
  double step_ms = 0;            // wall time in milliseconds
  double tokens_per_second = 0;  // over all ranks
  double model_tflops = 0;       // TFLOP/s per rank by `flops_formula`
  std::string flops_formula;     // text of the formula
  // model_tflops / peak: a GPU's nominal peak, a CPU's measured one. Absent if unknown or above 1.
  std::optional<double> mfu;
  int64_t arena_bytes = 0;                // capacity of this rank's arena
  int64_t allocation_count = 0;           // allocation_count() (memory.h) when the step started
  bool skipped = false;                   // the optimizer did not step: non-finite loss or gradient
  int64_t skipped_iterations = 0;         // steps with `skipped` so far
  int64_t nan_iterations = 0;             // the same number, for Megatron-LM's field of this name
  std::optional<double> validation_loss;  // of an unnamed set, nats per token
  std::vector<std::pair<std::string, double>> validation_losses;  // of named sets
  std::optional<double> test_loss;                                // last step only
  // Validation and test sets whose loss covers only a part of their samples: set name ("": the
  // unnamed set; "test") to the covered part, such as "160 of 549".
  std::map<std::string, std::string> partial_sets;
  std::optional<RoundMetrics> round;  // with several sites; absent if no round ended
  std::vector<std::pair<std::string, double>> extra;  // further numbers, such as time shares
};

}  // namespace trireme
