// Multi-token prediction layers (MTP; DeepSeek-AI 2024, arXiv 2412.19437), which published files
// have after a model's last layer. They are never run: imports and exports copy their tensors.
#pragma once

#include <vector>

#include "transformer/formats/model_source.h"

namespace trireme {

// Returns the tensors of all MTP layers that the configuration counts, in the order of the files,
// each to be copied in its own dtype: parameter_dtype(). All or none: none, with a note logged
// once, if a layer has no tensors, or if a tensor is not a vector or matrix of floats with rows of
// at most 2^24 elements.
std::vector<ModelParameter> mtp_parameters(const ModelSource& source);

}  // namespace trireme
