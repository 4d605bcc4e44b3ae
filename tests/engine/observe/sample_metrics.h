// Metrics of a step of training, the same for all reports.
#pragma once

#include "engine/observe/console_line.h"

namespace trireme::test {

inline StepMetrics sample_metrics() {
  StepMetrics m;
  m.step = 840;
  m.train_steps = 2000;
  m.consumed_samples = 10080;
  m.global_batch_size = 12;
  m.step_ms = 62.4499;
  m.model_tflops = 0.1234;
  m.lr = 9.5e-4;
  m.loss = 1.93125;
  m.grad_norm = 0.61249;
  m.tokens_per_second = 12297.6;
  m.mfu = 0.4567;
  return m;
}

}  // namespace trireme::test
