// Progress bar of a run: one line at the bottom of a terminal; nothing if there is no terminal.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "engine/observe/step_metrics.h"

namespace trireme {

// "12:34" (minutes:seconds), "3:12:34", "2d 03:12" (hours:minutes); "--:--" if seconds is negative,
// not finite or above 1e9.
std::string format_duration(double seconds);
std::string format_count(double count);   // 950, 12.3k, 4.56M, 7.89G, 1.23T
std::string format_bytes(int64_t bytes);  // 950 B, 12.3 KiB, 4.56 MiB, 7.89 GiB, 1.23 TiB

// Text of the bar, at most `columns` characters; the least important fields are left out first.
//   pretrain  42% [########......] 840/2000  loss 1.9312  12.3k tok/s  ETA 1:23
std::string progress_line(const std::string& label, const StepMetrics& metrics, double eta_seconds,
                          int columns);

class ProgressBar {
 public:
  // first_step: steps done before this process (a resumed run), which the ETA's speed excludes.
  ProgressBar(std::string label, int64_t first_step);
  ~ProgressBar();  // removes the line
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;
  void update(const StepMetrics& metrics);  // draws at most ten times a second, and the last step

 private:
  std::string label_;
  int64_t first_step_;
  std::chrono::steady_clock::time_point start_, drawn_;
};

}  // namespace trireme
