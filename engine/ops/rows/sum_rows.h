// Sum of matrices at unrelated addresses, such as a rank's own and those received from peers.
#pragma once

#include <span>

#include "engine/ops/context.h"

namespace trireme {

// y[r, c] = terms[0][r, c] + terms[1][r, c] + ..., in this order; at least one term.
//   y, terms (R, M)  one float dtype, unit stride in the columns, any stride of rows
// Summed in float32 (float64 for float64) and rounded once. y may be one of the terms.
void sum_rows(Ctx& ctx, const Tensor& y, std::span<const ConstTensor> terms);

}  // namespace trireme
