// Scalars for TensorBoard: an events file (TFRecord frames around Event protocol buffers, both
// simple enough to write by hand) under Megatron-LM's tag names.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "engine/observe/step_metrics.h"

namespace trireme {

// Bytes of one TFRecord frame and of one Event message; exposed for tests. wall_time: seconds since
// 1970.
std::string tfrecord(std::string_view payload);
std::string scalar_event(double wall_time, int64_t step, std::string_view tag, float value);

class TensorBoardWriter {
 public:
  TensorBoardWriter() = default;
  // Creates a new events file in `directory`, itself created if absent, for the steps from
  // first_step on, and makes TensorBoard discard these steps of earlier files, since a resumed run
  // repeats them. FileError if the file cannot be created.
  TensorBoardWriter(const std::string& directory, int64_t first_step);
  ~TensorBoardWriter();
  TensorBoardWriter(TensorBoardWriter&& other) noexcept;
  TensorBoardWriter& operator=(TensorBoardWriter&& other) noexcept;

  // Appends scalars, stored as float32: one, or those of a step (without `extra`). If the disk is
  // full, they are left out, with one warning.
  void scalar(int64_t step, std::string_view tag, double value);
  void write(const StepMetrics& metrics);

 private:
  void append(const std::string& bytes);
  std::string path_;
  int descriptor_ = -1;
  bool warned_ = false;
};

}  // namespace trireme
