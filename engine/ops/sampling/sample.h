// Sampling of tokens from logits.
//
// Of a row of logits l (V) the kept tokens are the first of the order (l descending, ties to the
// lower id), with p = exp((l - max l) / temperature), filtered successively by
//   top_k  at most the first top_k (0: all)
//   top_p  the shortest prefix whose p sum to at least top_p of the sum over the first top_k
//   min_p  none whose p is below min_p times the largest; the first is always kept
//   typical_p  with q = p over their sum and H = -sum q ln q, the fewest with the least |H + ln q|
//              (ties in the order) whose q sum to at least typical_p (Meister et al. 2022); 1: all
// and the token is sampled at which the running sum of p exceeds u times the sum over the kept. u
// in [0, 1) has 53 bits, from block number `position` of the Philox stream "sample" of the seed: a
// token depends on logits, seed and position only. temperature 0 takes the first. A row with NaN,
// with infinity, or with no finite logit gives id -1 and log-probability NaN.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/ops/context.h"

namespace trireme {

struct RowSamplingParams {
  double temperature = 1.0;  // 0: the largest logit (greedy)
  int64_t top_k = 0;         // 0: all
  double top_p = 1.0;        // smallest set of tokens whose probabilities reach top_p
  double min_p = 0.0;        // tokens below min_p times the largest probability are dropped
  uint64_t seed = 0;
  double typical_p = 1.0;  // mass of the tokens whose information is closest to the entropy
};

struct SampledToken {
  int32_t id = 0;
  double logprob = 0;  // of the unmodified distribution (temperature 1, nothing dropped)
};

// Random number of (seed, position).
double sampling_uniform(uint64_t seed, int64_t position);

// ln of the sum of exp(l), in float64; not finite if no token can be sampled from the row.
double log_normaliser(std::span<const float> logits);
// First `count` ids of the order, or all.
void first_of_row(std::span<const float> logits, int64_t count, std::vector<int32_t>& order);

// Samples one row on the host, in O(V) except for ties (row_order.h). A p below e^-50 of the
// largest counts as zero. The others are within 2 ulp, and their sums within rounding errors: two
// instruction sets may sample neighbouring tokens if u is that close to a boundary.
SampledToken sample_row(const RowSamplingParams& params, std::span<const float> logits,
                        int64_t position);

// Parameters of each row, all (R): those above except typical_p, whose ranges the caller has
// checked.
struct SampleRows {
  ConstTensor temperature, top_p, min_p;  // float64
  ConstTensor top_k, seed, position;      // int64; the seed bit-cast
};

// id (R) int32 and logprob (R) float64 of logits (R, V) float32, 0 < V < 2^31, of unit stride in V.
// A GPU gives a row the same bits in every run and with any other rows.
//
// It sums p in integers of S = min(52, 63 - ceil(log2 V)) bits. A unit is 2^-S of the largest p of
// a bin, and each p is rounded by at most half a unit. All p of a bin are within a factor of
// e^(1/16), except for p < e^-31: these together are rounded by less than V 2^-S e^-31. Hence the
// relative error of a sum is at most 2^-S, apart from float64's own rounding. If u is within
// 2^(1-S) of a boundary, a neighbour may be sampled; if top_p is, a neighbour may be kept. For V =
// 128,256 that is 2^-45.
void sample_rows(Ctx& ctx, const Tensor& id, const Tensor& logprob, const ConstTensor& logits,
                 const SampleRows& rows);

}  // namespace trireme
