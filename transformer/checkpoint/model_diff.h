// The difference of two models on disk, tensor by tensor, in whatever formats they are.
#pragma once

#include <string>
#include <vector>

#include "transformer/formats/file_tensor.h"

namespace trireme {

struct DiffOptions {
  // Values that differ by at most this share of the larger one are equal, and so are two dtypes. 0:
  // both must be the same.
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
  int64_t tensors = 0;  // that both have
  std::vector<TensorDifference> differences;
};

// Models are compared by the names of their parameters, which the names in the files may differ
// from: a hub's GPT-2 has them without their prefix. Where a side is a .safetensors file, or a
// directory of such without a configuration, the names in the files are compared. Streaming.
ModelDiff diff_models(const std::string& a, const std::string& b, const DiffOptions& options = {});

}  // namespace trireme
