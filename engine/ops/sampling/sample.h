// Sampling of tokens from logits.
//
// The tokens of a row of logits l (V) are ordered by descending l, ties by ascending id. With
// p = exp((l - max l) / temperature) they are filtered in this order:
//   top_k      keeps the first top_k; 0: all
//   top_p      keeps the shortest prefix whose p sum to at least top_p of the sum over these top_k
//   min_p      drops those whose p is below min_p times the largest, except the first
//   typical_p  with q = p over the sum of the kept p and H = -sum q ln q, keeps the fewest tokens
//              of least |H + ln q| (ties by the order) whose q sum to at least typical_p (Meister
//              et al. 2022); 1: all
// The sampled token is the first at which the running sum of the kept p exceeds u times their sum.
// u in [0, 1) has 53 bits, from block number `position` of the Philox stream "sample" of the seed:
// a token depends only on parameters, logits, seed and position. temperature 0 samples the first
// token. A row with NaN or +infinity, or without a finite logit, gives id -1 and log-probability
// NaN.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/ops/context.h"

namespace trireme {

struct RowSamplingParams {
  double temperature = 1.0;  // 0: the largest logit (greedy)
  int64_t top_k = 0;         // 0: all
  double top_p = 1.0;        // 1: all
  double min_p = 0.0;        // 0: all
  uint64_t seed = 0;
  double typical_p = 1.0;  // 1: all
};

struct SampledToken {
  int32_t id = 0;
  double logprob = 0;  // ln probability at temperature 1, without filters
};

// Returns u, the random number of (seed, position). position: index of the token in its sequence,
// or any other number that is different for each token.
double sampling_uniform(uint64_t seed, int64_t position);

// Returns ln of the sum of exp(l), in float64; not finite if no token can be sampled from the row.
double log_sum_exp(std::span<const float> logits);
// Sets `order` to the first `count` ids in the order, or to all if V is smaller; to none if
// count <= 0. No logit may be NaN.
void first_of_row(std::span<const float> logits, int64_t count, std::vector<int32_t>& order);

// Samples one row on the host, in O(V) except for ties (row_order.h). A p below e^-50 of the
// largest counts as zero; the others are within 2 ulp, and their sums within rounding errors. Two
// instruction sets may sample neighbouring tokens if u is within that error of a boundary.
SampledToken sample_row(const RowSamplingParams& params, std::span<const float> logits,
                        int64_t position);

// Parameters of the rows, (R) each: those of RowSamplingParams except typical_p. Their ranges are
// not checked.
struct SampleRows {
  ConstTensor temperature, top_p, min_p;  // float64
  ConstTensor top_k, seed, position;      // int64; the seed bit-cast
};

// Samples each row of logits (R, V) float32, 0 < V < 2^31, unit stride in V, into id (R) int32 and
// logprob (R) float64. On the CPU each row is sampled by sample_row(). On a GPU the bits of a row
// do not depend on the run or on the other rows.
//
// A GPU sums p as integers of S = min(52, 63 - ceil(log2 V)) bits. A unit is 2^-S of the largest p
// of a bin, and each p is rounded by at most half a unit. All p of a bin are within a factor of
// e^(1/16), except for p < e^-31: these together are rounded by less than V 2^-S e^-31. Hence the
// relative error of a sum is at most 2^-S, apart from float64 rounding. If u is within 2^(1-S) of a
// boundary, a neighbour may be sampled; if top_p is, a neighbour may be kept. For V = 128,256 that
// is 2^-45.
void sample_rows(Ctx& ctx, const Tensor& id, const Tensor& logprob, const ConstTensor& logits,
                 const SampleRows& rows);

}  // namespace trireme
