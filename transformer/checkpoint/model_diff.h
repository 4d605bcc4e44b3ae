// Tensor-by-tensor comparison of two models on disk, in any formats.
#pragma once

#include <string>
#include <vector>

#include "transformer/formats/file_tensor.h"

namespace trireme {

struct DiffOptions {
  // Relative tolerance: values that differ by at most this fraction of the larger magnitude count
  // as equal, and dtypes may differ. 0: values and dtypes must be identical.
  double tolerance = 0;
  CopyProgress progress = {};
};

struct TensorDifference {
  std::string name;
  // "only in PATH", shapes "(4, 8) | (8, 4)", or dtypes "float32 | bfloat16". Empty: only values
  // differ.
  std::string what;
  // Elements of the tensor in `a`, and those of them that differ by more than the tolerance. Both
  // are 0 for a tensor in only one model; with different shapes no values are compared.
  int64_t elements = 0, differing = 0;
  // Largest differences over all elements. Relative: to the larger magnitude of the two values. NaN
  // if an element is NaN in one model only; infinite if one is infinite and the other a number or
  // the opposite infinity.
  double largest_absolute = 0, largest_relative = 0;
};

struct ModelDiff {
  int64_t tensors = 0;  // common to both models
  std::vector<TensorDifference> differences;
};

// Compares parameters by our names; those in the files may differ (a hub's GPT-2 lacks the prefix).
// If a or b is a .safetensors file, or a directory of such files without a configuration, tensors
// are compared by their names in the files instead. Streaming. Two NaNs count as equal. InputError
// if a model cannot be opened.
ModelDiff diff_models(const std::string& a, const std::string& b, const DiffOptions& options = {});

}  // namespace trireme
