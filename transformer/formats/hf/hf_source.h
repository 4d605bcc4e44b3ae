// Where a parameter lies in a HuggingFace checkpoint.
//
// Names are HuggingFace's, so that mostly it is the tensor of that name. Where they store a matrix
// in another way, the family says here which rows of which tensor a parameter is.
#pragma once

#include <string>

#include "transformer/config/model_config.h"

namespace trireme {

struct HfSource {
  std::string tensor;
  // The tensor is (in, out) and the parameter (out, in): GPT-2's Conv1D.
  bool transposed = false;
  // Of the tensor's rows (after transposition) the parameter's first, where one tensor holds
  // several parameters one behind the other. Dimensions before the last count together as rows.
  int64_t first_row = 0;
};

HfSource hf_source(const ModelConfig& config, const std::string& parameter);

// Tensors that published checkpoints hold and no model needs: what others compute anew (inv_freq,
// masks), layers that predict tokens after the next.
bool hf_tensor_is_ignored(const ModelConfig& config, const std::string& tensor);

}  // namespace trireme
