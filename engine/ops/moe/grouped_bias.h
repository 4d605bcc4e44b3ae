// Grouped biases of experts: rows sorted by expert, each range of rows with its own bias.
//
//   y, dy (R, N): rows [offsets[e], offsets[e + 1]) belong to expert e.
//   offsets (E + 1): ascending, from 0 to at most R. A range may be empty.
//   Other rows are neither read nor written.
// Each range is a separate call of add_bias() or bias_backward() (engine/ops/rows/activation.h).
// Offsets are ignored in a planning run, which does not know them.
#pragma once

#include <span>

#include "engine/ops/context.h"

namespace trireme {

// y += bias of each row's expert; biases[e] (N), dtype of y.
void grouped_bias_forward(Ctx& ctx, const Tensor& y, std::span<const Tensor> biases,
                          std::span<const int64_t> offsets);

// db [+]= the column sums of an expert's rows of dy. Without rows db becomes 0, or is unchanged if
// `accumulate`.
struct GroupedBiasGradient {
  Tensor db;  // (N), float32 (float64 for float64)
  bool accumulate = false;
};
void grouped_bias_backward(Ctx& ctx, std::span<const GroupedBiasGradient> gradients,
                           const ConstTensor& dy, std::span<const int64_t> offsets);

}  // namespace trireme
