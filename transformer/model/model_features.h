// Human-readable features of a model, derived from its ModelConfig.
#pragma once

#include <string>
#include <vector>

#include "transformer/config/model_config.h"

namespace trireme {

// Returns one entry per part of the model: "rotary positions, base 10000, yarn scaling by 40",
// "window of 512 tokens in 22 of 26 layers", "128 experts of width 768 in 48 of 48 layers, 8 per
// token".
std::vector<std::string> model_features(const ModelConfig& config);

}  // namespace trireme
