// Mapping from our parameter names to tensors and rows of a HuggingFace checkpoint.
//
// Our names are HuggingFace's, so that most parameters are the tensor of that name. For a family
// that stores a matrix in another way, HfSource defines the tensor and the rows of a parameter.
#pragma once

#include <string>

#include "transformer/config/model_config.h"

namespace trireme {

struct HfSource {
  std::string tensor;
  // Transposed storage: the tensor is (in, out), the parameter (out, in), as in GPT-2's Conv1D.
  bool transposed = false;
  // First row of the parameter among the tensor's rows (after transposition), if a tensor holds
  // several parameters one after the other. Dimensions before the last are flattened into rows.
  int64_t first_row = 0;
  // Stacked storage, as of all experts: the tensor is `matrices` matrices, and its first dimension
  // selects one; rows are counted in matrix `matrix`. A stack of vectors (matrices, length) is
  // `transposed`. 0: not stacked.
  int64_t matrices = 0, matrix = 0;
  // Interleaved rows: the parameter's rows are every row_step-th of the tensor's.
  int64_t row_step = 1;
};

// Returns the tensor and rows that store a parameter in the family's published layout.
HfSource hf_source(const ModelConfig& config, const std::string& parameter);

// Returns the index, from 0, of the multi-token prediction layer of a tensor; -1: none.
int64_t mtp_layer_of(const ModelConfig& config, const std::string& tensor);

// Returns whether no model needs this tensor of a published checkpoint: values that are computed
// here (inv_freq, masks), multi-token prediction layers.
bool hf_tensor_is_ignored(const ModelConfig& config, const std::string& tensor);

}  // namespace trireme
