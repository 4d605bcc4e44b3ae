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
  std::string what;  // "only in A", "(4, 8) | (8, 4)", "float32 | bfloat16, ..."
  int64_t elements = 0, differing = 0;
  double largest_absolute = 0, largest_relative = 0;
};

struct ModelDiff {
  int64_t tensors = 0;  // common to both models
  std::vector<TensorDifference> differences;
};

// Compares parameters by our names; those in the files may differ (a hub's GPT-2 lacks the prefix).
// Names in the files are compared if a or b is a .safetensors file, or a directory of such files
// without a configuration. Streaming.
ModelDiff diff_models(const std::string& a, const std::string& b, const DiffOptions& options = {});

}  // namespace trireme
