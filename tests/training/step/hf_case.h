// One folder of tests/golden/hf: a model made by HuggingFace's transformers and what that computes
// with it.
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
  // Of one step over the batch, in `dtype` on ranks of such a layout, without losses of routers and
  // dropout.
  RunConfig config(const ParallelSizes& sizes, DType dtype) const;
  // Two rows of as many tokens as the longest document has.
  MicroBatch batch() const;
  int64_t row_length() const { return row_length_; }
  // Of the whole logical parameter, as this project stores it.
  std::vector<double> gradient(const ParameterSpec& spec) const;

 private:
  HfModel source_;
  SafetensorsReader expected_;
  int64_t row_length_;
};

}  // namespace trireme::test
