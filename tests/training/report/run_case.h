// Records of a run of training for reports.
#pragma once

#include <cmath>

#include "engine/io/atomic_file.h"
#include "engine/observe/metrics.h"

namespace trireme::test {

// A run of `steps` steps whose loss falls linearly from 4 to 2; validation every tenth step.
inline void write_run(const std::string& directory, int steps, bool with_config = true) {
  make_directories(directory);
  MetricsFile file(directory + "/metrics.jsonl");
  for (int step = 1; step <= steps; ++step) {
    StepMetrics m;
    m.step = step;
    m.tokens = 100;
    m.consumed_tokens = 100 * step;
    m.loss = step == 5 ? NAN : 4.0 - 2.0 * step / steps;
    m.tokens_per_second = step == 1 ? 10 : 1000 + step % 3;
    m.step_ms = 100;
    if (step % 10 == 0) m.validation_loss = step == 20 ? 1.5 : 3.0;
    file.write(m);
  }
  if (with_config) {
    write_file_atomically(
        directory + "/resolved_config.json",
        R"({"model": {"model_type": "gpt2", "n_layer": 3, "n_embd": 48, "n_head": 4},
                              "train_batch_size": 8, "sequence_length": 16, "train_steps": 90})");
  }
}

}  // namespace trireme::test
