// Routers of a mixture of experts: which k experts a token goes to, and with what weights.
//
//   score s_e    kSoftmax: exp(l_e) / sum_i exp(l_i) (Shazeer et al. 2017, Mixtral, Qwen-MoE)
//                kSigmoid: 1 / (1 + exp(-l_e)) (DeepSeek-V3)
//   choice       the k largest c_e = s_e + bias_e; the bias moves the choice only, never the weights
//                (balancing without a loss, Wang et al. 2024). Equal values: the lower index first.
//   groups       experts in `groups` equal neighbourhoods, of which the `kept_groups` best are
//                eligible (DeepSeek): a group counts as its largest c (kSoftmax) or as the sum of its
//                two largest (kSigmoid); equal groups: the lower index first
//   weight w_j   scale * s_{e_j}, divided by sum_j s_{e_j} + 1e-20 where `normalise`
//
//   logits, scores, d_logits   (T, E)  float32 or float64
//   weights, d_weights         (T, k)  that dtype, in the order of the choice
//   bias                       (E)     that dtype; optional
//   experts                    (T, k)  int32
//   valid                      (T)     uint8; optional. 0: padding, which has expert -1 and weight 0
// A row with a NaN has NaN weights and some k different experts, so that a broken step is seen and
// not crashed.
#pragma once

#include "engine/ops/context.h"

namespace trireme {

enum class RouterScore : uint8_t { kSoftmax, kSigmoid };

struct RouterArgs {
  RouterScore score = RouterScore::kSoftmax;
  bool normalise = true;
  double scale = 1.0;
  int64_t groups = 1;  // at most 64
  int64_t kept_groups = 1;
};

void router_forward(Ctx& ctx, const Tensor& scores, const Tensor& experts, const Tensor& weights,
                    const ConstTensor& logits, const ConstTensor& bias, const ConstTensor& valid,
                    const RouterArgs& args);

// What the auxiliary losses (router_loss.h) add to the gradient; float64, each optional.
struct RouterLossGradients {
  ConstTensor probability;  // (S, E): of the loss by q_e, the scores divided by their sum
  ConstTensor segments;     // (T) int32 in [0, S): a token's row of it; absent: row 0
  ConstTensor importance;   // (E): of the loss by the sum of an expert's weights
  ConstTensor z;            // (1): of the loss by the square of logsumexp(logits)
};

// d_logits (overwritten) from the gradient of the weights and of the losses. The choice itself has
// no gradient. `experts` are the router's own, before any pair was dropped for capacity.
void router_backward(Ctx& ctx, const Tensor& d_logits, const ConstTensor& d_weights,
                     const ConstTensor& scores, const ConstTensor& logits,
                     const ConstTensor& experts, const RouterLossGradients& losses,
                     const RouterArgs& args);

}  // namespace trireme
