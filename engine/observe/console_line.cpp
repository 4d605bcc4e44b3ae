#include "engine/observe/console_line.h"

#include <spdlog/fmt/fmt.h>

#include <chrono>
#include <cmath>
#include <ctime>

#include "engine/observe/progress.h"

namespace trireme {
std::string local_time_text() {
  const auto now = std::chrono::system_clock::now();
  const auto micros =
      std::chrono::duration_cast<std::chrono::microseconds>(now.time_since_epoch()).count();
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  std::tm parts{};
  localtime_r(&seconds, &parts);
  char date[32];
  std::strftime(date, sizeof date, "%Y-%m-%d %H:%M:%S", &parts);
  return fmt::format("{}.{:06}", date, micros % 1000000);
}

std::string console_line(const StepMetrics& m) {
  std::string line =
      fmt::format("[{}] iteration {:8d}/{:8d} |", local_time_text(), m.step, m.train_steps);
  line += fmt::format(" consumed samples: {:12d} |", m.consumed_samples);
  line += fmt::format(" elapsed time per iteration (ms): {:.1f} |", m.step_ms);
  line += fmt::format(" throughput per GPU (TFLOP/s/GPU): {:.1f} |", m.model_tflops);
  line += fmt::format(" learning rate: {:.6E} |", m.lr);
  line += fmt::format(" global batch size: {:5d} |", m.global_batch_size);
  // A skipped step has no loss worth parsing; Megatron leaves the field out too.
  if (!m.skipped) line += fmt::format(" lm loss: {:.6E} |", m.loss);
  line += fmt::format(" loss scale: {:.1f} |", m.loss_scale);
  if (!m.skipped) line += fmt::format(" grad norm: {:.3f} |", m.grad_norm);
  line += fmt::format(" number of skipped iterations: {:3d} |", m.skipped_iterations);
  line += fmt::format(" number of nan iterations: {:3d} |", m.nan_iterations);
  line += fmt::format(" tokens/s: {:.0f} |", m.tokens_per_second);
  if (m.mfu.has_value()) line += fmt::format(" MFU: {:.1f}% |", *m.mfu * 100);
  if (m.round.has_value())
    line += fmt::format(" outer round: {} sent, {:.1f} ms |", format_bytes(m.round->sent_bytes),
                        m.round->ms);
  return line;
}

std::string validation_line(int64_t step, double loss, const std::string& set,
                            const std::string& part) {
  return fmt::format(
      "validation loss at iteration {}{} | lm loss value: {:.6E} | lm loss PPL: {:.6E} |{}", step,
      set.empty() ? "" : fmt::format(" on {} set", set), loss, std::exp(loss),
      part.empty() ? "" : fmt::format(" samples: {} |", part));
}

}  // namespace trireme
