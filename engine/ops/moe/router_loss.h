// Auxiliary losses of a router, defined on the logical micro-batch: the valid tokens of the same
// sequences in every layout of ranks. Between router_statistics and router_losses the caller
// all-reduces one flat block of sums over the ranks with different tokens of the micro-batch; each
// rank then computes the exact gradient of its own tokens. Padding is in none of the sums.
//
//   n_s        valid tokens of segment s: a sequence, or the whole micro-batch
//   n          valid tokens of all segments
//   f_se       chosen (token, expert) pairs, before any are dropped, / (k n_s)
//   P_se       mean over the segment of q_e, a token's score s_e divided by the sum of its scores
//   balance    alpha E sum_s n_s / n sum_e f_se P_se       alpha if uniform (Switch, Fedus et al.
//              2021); f is constant in the gradient. If given, `shares` (E) replaces f in every
//              segment: the shares of the experts in the previous step's global batch
//   z          beta mean_t logsumexp(l_t)^2                (ST-MoE, Zoph et al. 2022)
//   importance gamma CV^2 of the E sums of weights (Shazeer et al. 2017)
//   load       delta CV^2 of the E loads of router_noise.h (same paper)
//   CV^2       variance / (mean^2 + 1e-10), the variance divided by E
//
// Each loss is one value per micro-batch. Its weight in the training loss is the micro-batch's
// number of tokens with a loss (loss_tokens) over that of the global batch: the sum over
// micro-batches is their token-weighted mean for any gradient accumulation and number of ranks.
#pragma once

#include "engine/ops/moe/router.h"

namespace trireme {

// Views of the flat block of float64 sums.
struct RouterSums {
  static int64_t size(int64_t segments, int64_t experts) {
    return segments * (2 * experts + 1) + 2 * experts + 2;
  }
  RouterSums(const Tensor& flat, int64_t segments, int64_t experts);
  Tensor counts;         // (S, E) pairs chosen
  Tensor probabilities;  // (S, E) sum of q
  Tensor tokens;         // (S) valid tokens
  Tensor importance;     // (E) sum of weights
  Tensor load;           // (E) see router_noise.h
  Tensor z;              // (1) sum of logsumexp(l)^2
  Tensor loss_tokens;    // (1) tokens with a loss
};

struct RouterTokens {
  ConstTensor segments;  // (T) int32 in [0, S); absent: all in segment 0
  // (T) int32; kIgnoredTarget (engine/ops/loss/cross_entropy.h): the token has no loss. Absent: no
  // token has one.
  ConstTensor targets;
};

// Overwrites the block with the sums over these tokens, and `load` with zeros (noisy_load() adds to
// it). The other operands are those of router_forward(); `experts` must be those before any pair
// was dropped, so that -1 marks padding only. The sums are computed in the order of the tokens, on
// a GPU in an order that depends on the sizes only. A valid token's segment outside [0, S) throws
// Error; on a GPU, whose memory the host does not read, such a token is in no sum.
void router_statistics(Ctx& ctx, const RouterSums& sums, const ConstTensor& scores,
                       const ConstTensor& logits, const ConstTensor& experts,
                       const ConstTensor& weights, const RouterTokens& tokens);

struct RouterLossArgs {
  int64_t k = 1;                                        // experts of a token
  double balance = 0, z = 0, importance = 0, load = 0;  // alpha, beta, gamma, delta
  ConstTensor shares = {};                              // (E) float64, optional
};

// Gradients with respect to the sums, times loss_tokens * scale; overwritten. float64:
// d_probability (S, E), d_importance (E), d_load (E), d_z (1).
struct RouterSumGradients {
  Tensor d_probability, d_importance, d_load, d_z;
};
// values (4) float64 += loss_tokens * (balance, z, importance, load). scale (1) float64: the factor
// of a token's loss in the gradient. Without valid tokens values are unchanged and gradients 0.
void router_losses(Ctx& ctx, const Tensor& values, const RouterSumGradients& gradients,
                   const RouterSums& sums, const ConstTensor& scale, const RouterLossArgs& args);

}  // namespace trireme
