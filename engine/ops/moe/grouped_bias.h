// Biases of experts: rows sorted by expert, each range of rows with its own bias.
//
//   y, dy (R, N): rows [offsets[e], offsets[e + 1]) belong to expert e, and offsets.back() <= R.
//   Other rows are neither read nor written. A range may be empty.
// Each range is one call of add_bias() or bias_backward() (engine/ops/rows/activation.h). In a
// planning run the offsets are unknown: pass none.
#pragma once

#include <span>

#include "engine/ops/context.h"

namespace trireme {

// y += bias of its expert; biases (N), dtype of y
void grouped_bias_forward(Ctx& ctx, const Tensor& y, std::span<const Tensor> biases,
                          std::span<const int64_t> offsets);

// db [+]= the column sums of an expert's rows of dy; for an expert without rows: 0, or unchanged.
struct GroupedBiasGradient {
  Tensor db;  // (N), float32 (float64 for float64)
  bool accumulate = false;
};
void grouped_bias_backward(Ctx& ctx, std::span<const GroupedBiasGradient> gradients,
                           const ConstTensor& dy, std::span<const int64_t> offsets);

}  // namespace trireme
