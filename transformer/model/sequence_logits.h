// Logits of a given sequence, computed in one pass, for comparison with other programs.
#pragma once

#include <span>
#include <vector>

#include "parallel/groups.h"
#include "transformer/model/model.h"

namespace trireme {

// Returns the logits (S, V), S = ids.size(), on the host of every rank: float32, rounded for
// float64 weights. All layers must be on one pipeline stage (else Error); matrices may be divided
// over tensor-parallel ranks, which must all call this. Requires Model::reserve_positions() for S
// positions.
std::vector<float> sequence_logits(const Model& model, ParameterStore& params, Ctx& ctx,
                                   const Groups& groups, std::span<const int32_t> ids);

}  // namespace trireme
