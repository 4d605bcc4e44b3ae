// Token permutation of a mixture of experts: gathers the tokens of (T, k) choices into rows sorted
// by expert, and combines such rows into tokens.
//
// A pair is one choice j of token t, numbered t k + j. Pairs are sorted by (expert, number): the
// order depends on the choices alone. A pair's place is its index in this order, without the pairs
// that are not dispatched.
//
//   experts  (T, k)  int32; -1: the pair is not dispatched (padding, or dropped)
//   pairs    (T k)   int32: pairs[q] is the pair in place q; defined for q < n, n = sum of counts
//   places   (T, k)  int32: place of each pair; -1 if it is not dispatched
//   counts   (E)     int64: number of pairs of each expert
// An expert outside [-1, E) throws Error; on a GPU, whose memory the host does not read, such a
// pair is not dispatched.
#pragma once

#include "engine/ops/context.h"

namespace trireme {

// Computes pairs, places and counts from experts.
void order_by_expert(Ctx& ctx, const Tensor& pairs, const Tensor& places, const Tensor& counts,
                     const ConstTensor& experts);

// Expert capacity: the maximum number of pairs of one expert, `factor` times an even share:
// ceil(factor * tokens * k / experts). tokens: valid tokens of the logical micro-batch.
int64_t expert_capacity(double factor, int64_t tokens, int64_t k, int64_t experts);

// Drops pairs over capacity in the order of tokens in the logical micro-batch, regardless of which
// rank has them: experts[t, j] becomes -1 if at least `capacity` pairs before it, in the order
// (global token index, j), chose that expert.
//   all_experts (N, k)  int32: choices of every token of the micro-batch, in any order, with this
//                       rank's T tokens at [first, first + T)
//   all_rows    (N)     int64: global token index of each
//   experts     (T, k)  int32: choices of this rank's tokens, as in all_experts; updated in place
//   dropped     (1)     int64: number of this rank's pairs dropped
void drop_over_capacity(Ctx& ctx, const Tensor& experts, const Tensor& dropped,
                        const ConstTensor& all_experts, const ConstTensor& all_rows, int64_t first,
                        int64_t num_experts, int64_t capacity);

// out[q] = x[pairs[q] / k].  out (n, C), x (T, C) of one float dtype; pairs (n).
void gather_rows(Ctx& ctx, const Tensor& out, const ConstTensor& x, const ConstTensor& pairs,
                 int64_t k);

// y[t] = sum over j, in order, of weights[t, j] * rows[places[t, j]]; a place of -1 adds nothing.
//   y (T, C), rows (R, C) of one float dtype, R >= n; weights (T, k) of sum_dtype, absent: all 1
// Summed in float32 (float64 for float64). Without weights this is the backward of gather_rows.
void combine_rows(Ctx& ctx, const Tensor& y, const ConstTensor& rows, const ConstTensor& places,
                  const ConstTensor& weights);

// d_rows[places[t, j]] = weights[t, j] * dy[t];  d_weights[t, j] = dot(dy[t], rows[places[t, j]]),
// 0 for a place of -1. Other rows of d_rows are not written. d_rows may alias rows.
void combine_rows_backward(Ctx& ctx, const Tensor& d_rows, const Tensor& d_weights,
                           const ConstTensor& dy, const ConstTensor& rows,
                           const ConstTensor& places, const ConstTensor& weights);

// y[t] = gate[t] * x[t] [+ y[t] if accumulate]; gate (T) of sum_dtype. y may be x.
void scale_rows(Ctx& ctx, const Tensor& y, const ConstTensor& x, const ConstTensor& gate,
                bool accumulate);

// out[t] = dot(a[t], b[t]) in float32 (float64 for float64); out (T) of sum_dtype.
void dot_rows(Ctx& ctx, const Tensor& out, const ConstTensor& a, const ConstTensor& b);

}  // namespace trireme
