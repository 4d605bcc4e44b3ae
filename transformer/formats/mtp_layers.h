// Layers of published files after a model's last one, for multi-token prediction (MTP; DeepSeek-AI
// 2024, arXiv 2412.19437). No layer here runs them: imports and exports copy their tensors.
#pragma once

#include <vector>

#include "transformer/formats/model_source.h"

namespace trireme {

// Tensors of all MTP layers that the configuration counts, in the order of the files, each to be
// copied in its own dtype: parameter_dtype(). All or none: none where a layer has no tensors, or a
// tensor is not a vector or matrix of floats, which is noted once.
std::vector<ModelParameter> mtp_parameters(const ModelSource& source);

}  // namespace trireme
