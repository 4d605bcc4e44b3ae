// One folder of tests/golden/hf: a model created by HuggingFace's transformers, and its results
// there.
#pragma once

#include <string>
#include <vector>

#include "engine/io/safetensors.h"
#include "training/config/run_config.h"
#include "training/data/batch_source.h"
#include "transformer/formats/hf/hf_model.h"

namespace trireme::test {

class HfCase {
 public:
  explicit HfCase(const std::string& name);

  const HfModel& source() const { return source_; }
  const SafetensorsReader& expected() const { return expected_; }
  // Configuration of one step over the batch, in `dtype`, on ranks with this layout, without router
  // losses and dropout.
  RunConfig config(const ParallelSizes& sizes, DType dtype) const;
  // Two rows, each as long as the longest document.
  MicroBatch batch() const;
  int64_t row_length() const { return row_length_; }
  // Gradient of the whole logical parameter, as this project stores it.
  std::vector<double> gradient(const ParameterSpec& spec) const;

 private:
  HfModel source_;
  SafetensorsReader expected_;
  int64_t row_length_;
};

}  // namespace trireme::test
