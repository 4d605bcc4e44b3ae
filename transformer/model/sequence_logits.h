// Logits of given sequences, one pass each, for comparison with other programs.
#pragma once

#include <span>
#include <vector>

#include "parallel/groups.h"
#include "transformer/model/model.h"

namespace trireme {

// Returns the logits (S, V) on the host, float32 (rounded from float64 where the weights are), S =
// ids.size(), on every rank. All layers must be on one pipeline stage; matrices may be divided over
// tensor-parallel ranks, which all call this. Requires positions reserved for S tokens.
std::vector<float> sequence_logits(const Model& model, ParameterStore& params, Ctx& ctx,
                                   const Groups& groups, std::span<const int32_t> ids);

}  // namespace trireme
