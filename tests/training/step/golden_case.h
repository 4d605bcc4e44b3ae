// One folder of tests/golden: the model, its weights and the reference results.
#pragma once

#include <string>
#include <vector>

#include "engine/io/safetensors.h"
#include "training/step/train_step.h"

namespace trireme::test {

class GoldenCase {
 public:
  GoldenCase(const std::string& name, DType dtype);

  const RunConfig& config() const { return config_; }
  RunConfig& config() { return config_; }
  double tolerance() const { return tolerance_; }  // of float64
  double steps_tolerance() const { return steps_tolerance_; }
  SafetensorsReader open(const std::string& file) const;  // "dense", "packed", "steps"

  void load_weights(Ctx& ctx, ParameterStore& store) const;  // to the device of the context
  // Reference tensor `prefix` + name of a parameter, in this project's layout: GPT-2's Conv1D
  // weights are transposed and c_attn is split into q, k, v.
  std::vector<double> reference(const SafetensorsReader& file, const std::string& prefix,
                                const ParameterSpec& spec) const;
  // Batch of a file. row >= 0 selects one row of a (steps, T) table.
  MicroBatch batch(const SafetensorsReader& file, int64_t row = -1) const;

 private:
  std::string folder_;
  RunConfig config_;
  double tolerance_ = 0, steps_tolerance_ = 0;
};

}  // namespace trireme::test
