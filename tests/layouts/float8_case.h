// Training run whose sizes FP8 products accept, for any layout.
#pragma once

#include <algorithm>
#include <cmath>

#include "optim/adamw.h"
#include "tests/layouts/layout_run.h"

namespace trireme::test {

inline RunConfig float8_config(Float8Recipe recipe, DType dtype) {
  RunConfig config;
  ModelConfig& model = config.model;
  model.vocab_size = 61;
  model.hidden_size = 64;
  model.intermediate_size = 160;  // more than one group of 128
  model.num_layers = 2;
  model.num_heads = 4;
  model.num_kv_heads = 2;
  model.head_dim = 16;
  model.max_positions = 32;
  model.initializer_range = 0.1;
  config.dtype = dtype;
  config.float8 = {.enabled = true, .recipe = recipe, .history = 2};
  config.train_batch_size = config.gradient_accumulation_steps = 4;
  config.micro_batch_size = 1;
  config.sequence_length = 32;
  config.train_steps = 4;  // scales from the tensor, then from a history that drops old steps
  config.optimizer.lr = 1e-3;
  AdamW rule;
  rule.eps = 1e-4;
  config.optimizer.rule = rule.clone();
  config.scheduler.style = DecayStyle::kConstant;
  return config;
}

// Error of the first step's gradient: median over the tensors of |got - want| / |want|. Where two
// runs round the same values except for the order of sums, a code occasionally falls on the other
// side of a rounding boundary, and the results after it differ by up to an eighth. Therefore
// float64 is compared exactly, and everything else by this median.
inline double first_gradient_error(const LayoutResult& got, const LayoutResult& want) {
  std::vector<double> errors;
  for (const auto& [name, expected] : want.gradients.at(0)) {
    const std::vector<double>& values = got.gradients.at(0).at(name);
    double difference = 0, norm = 0;
    for (size_t i = 0; i < expected.size(); ++i) {
      difference += (values.at(i) - expected[i]) * (values.at(i) - expected[i]);
      norm += expected[i] * expected[i];
    }
    errors.push_back(std::sqrt(difference / norm));
  }
  std::ranges::nth_element(errors, errors.begin() + std::ssize(errors) / 2);
  return errors[errors.size() / 2];
}

}  // namespace trireme::test
