// Top-k and random-k sparsification of gradients and updates for slow links, per block.
//
// Each row of x (R, C) is cut into blocks of `block` columns, B = ceil(C / block) per row; the last
// one may be shorter. Of a block of w elements kept(w) = max(1, round(ratio * w)) are selected, a
// row has K of them. With v = x + residual, in float32 (float64 for a float64 x):
//   select_largest  those of largest |v|; of equal ones the first. NaN is larger than infinity.
//   select_random   those with the largest random words; of equal ones the first
//   gather_selected    value = v at the selected elements; residual = 0 there, v elsewhere
//   scatter_selected   y = value at the selected elements, 0 elsewhere
// index (R, K) uint16: columns within their blocks, ascending in each block. Values (R, K) have the
// dtype of v. The results are the same on every machine and do not depend on whether x is a matrix
// or a part of one that consists of whole blocks.
//
// x is of any float dtype; residual has the dtype of v. Operands are contiguous and do not overlap.
//
// Top-k with error feedback: Aji and Heafield 2017, "Sparse communication for distributed gradient
// descent"; Stich et al. 2018, "Sparsified SGD with memory", also for random elements.
#pragma once

#include "engine/ops/context.h"

namespace trireme {

inline constexpr int64_t kMaxSparseBlock = 16384;

struct SparseCode {
  double ratio = 0.01;   // of the elements of a block that are kept; above 0, at most 1
  int64_t block = 4096;  // columns, at most kMaxSparseBlock
};

int64_t kept_in_block(const SparseCode& code, int64_t width);
int64_t kept_in_row(const SparseCode& code, int64_t columns);  // K

// residual may be absent: v = x.
void select_largest(Ctx& ctx, const SparseCode& code, const Tensor& index, const ConstTensor& x,
                    const Tensor& residual);

// Key of the random words, and which blocks of the keyed matrix x has: block b of its row r is
// number first + r * stride + b. stride 0: B.
struct RandomBlocks {
  RandomKey key = {};
  int64_t first = 0, stride = 0;
};
// columns: C. Element i of block number n has word n * block + i of the key's stream.
void select_random(Ctx& ctx, const SparseCode& code, const Tensor& index, int64_t columns,
                   const RandomBlocks& blocks);

// residual may be absent. index must be valid: that of a select_ function.
void gather_selected(Ctx& ctx, const SparseCode& code, const Tensor& values,
                     const ConstTensor& index, const ConstTensor& x, const Tensor& residual);

// y (R, C) of any float dtype, rounded once; with `add`, y + the values. An index outside of its
// block is ignored. If the indices of a block do not ascend, as in a damaged message, its elements
// are undefined.
void scatter_selected(Ctx& ctx, const SparseCode& code, const Tensor& y, const ConstTensor& values,
                      const ConstTensor& index, bool add);

}  // namespace trireme
