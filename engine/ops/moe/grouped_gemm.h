// Grouped matrix products: rows sorted by expert, each range of rows with its own weight.
//
//   x (R, K), y (R, N) and their gradients, contiguous: rows [offsets[e], offsets[e + 1]) belong to
//   weights[e] (N, K). Other rows are neither read nor written.
//   offsets (E + 1): ascending, from 0 to at most R. A range may be empty.
//   dtypes as in engine/ops/gemm/gemm.h.
// On the CPU ranges are split into tiles of 1024, 256, 64 and 16 rows. A remainder of fewer than 16
// rows is copied to scratch and padded to 16 with zeros. Any distribution of tokens needs products
// of only four sizes and bounded scratch. On a GPU each range is one product of its exact size, in
// order on the main stream: one large expert fills the device, while launches dominate the cost of
// small ones; a grouped kernel that reads the offsets on the device would save those. Offsets are
// ignored in a planning run, which does not know them.
#pragma once

#include <span>

#include "engine/ops/gemm/gemm.h"

namespace trireme {

// Throws Error unless `offsets` has experts + 1 ascending entries, from 0 to at most `rows`.
void check_expert_offsets(const char* op, std::span<const int64_t> offsets, size_t experts,
                          int64_t rows);

// y = x w^T
void grouped_linear_forward(Ctx& ctx, const Tensor& y, const ConstTensor& x,
                            std::span<const Tensor> weights, std::span<const int64_t> offsets);
// dx = dy w
void grouped_linear_backward_input(Ctx& ctx, const Tensor& dx, const ConstTensor& dy,
                                   std::span<const Tensor> weights,
                                   std::span<const int64_t> offsets);
// dw = dy^T x over an expert's rows, or += if `accumulate`; tiles are added in order. Without rows
// dw becomes 0, or is unchanged if `accumulate`.
struct GroupedGradient {
  Tensor dw;  // (N, K), float32 or x's dtype
  bool accumulate = false;
};
void grouped_linear_backward_weight(Ctx& ctx, std::span<const GroupedGradient> gradients,
                                    const ConstTensor& dy, const ConstTensor& x,
                                    std::span<const int64_t> offsets);

}  // namespace trireme
