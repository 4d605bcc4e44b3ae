// Router of a mixture of experts: chooses k experts for each token, and their weights.
//
//   score s_e    kSoftmax: exp(l_e) / sum_i exp(l_i) (Shazeer et al. 2017, Mixtral, Qwen-MoE)
//                kSigmoid: 1 / (1 + exp(-l_e)) (DeepSeek-V3)
//   choice       the k largest c_e = s_e + bias_e; the bias affects the choice only, never the
//                weights (loss-free balancing, Wang et al. 2024). Ties: the lower index first.
//                With choose_by_logits and without a bias c_e = l_e: large logits stay distinct
//                where their sigmoids round to 1 (Llama 4).
//   groups       experts in `groups` equal ranges, of which the `kept_groups` best are eligible
//                (DeepSeek): a group is rated by its largest c (kSoftmax) or by the sum of its two
//                largest (kSigmoid; of one expert: its c); ties: the lower index first
//   weight w_j   scale * s_{e_j}; if `normalize`, divided by (sum_j s_{e_j} + 1e-20)
//
//   logits, scores, d_logits   (T, E)  float32 or float64
//   weights, d_weights         (T, k)  that dtype, in the order of the choice
//   bias                       (E)     that dtype; optional
//   experts                    (T, k)  int32
//   valid                      (T)     uint8; optional. 0: padding, with expert -1 and weight 0;
//                                      its scores are computed like the others
// A NaN c_e counts as the lowest finite number, so that a row with NaNs still has k distinct
// experts and a broken step does not crash; so does a group whose two best c_e are infinity and
// -infinity. With kSoftmax a NaN logit makes all scores and weights of its row NaN.
#pragma once

#include "engine/ops/context.h"

namespace trireme {

enum class RouterScore : uint8_t { kSoftmax, kSigmoid };

struct RouterArgs {
  RouterScore score = RouterScore::kSoftmax;
  bool normalize = true;
  double scale = 1.0;
  int64_t groups = 1;       // at most 64, divides E
  int64_t kept_groups = 1;  // in [1, groups]; k experts at least are in so many groups
  bool choose_by_logits = false;
};

void router_forward(Ctx& ctx, const Tensor& scores, const Tensor& experts, const Tensor& weights,
                    const ConstTensor& logits, const ConstTensor& bias, const ConstTensor& valid,
                    const RouterArgs& args);

// Gradients of the auxiliary losses (router_loss.h), each with respect to the value in its comment.
// Each is optional, and float64 unless noted.
struct RouterLossGradients {
  ConstTensor probability;  // (S, E): q_e, the scores divided by their sum
  ConstTensor segments;     // (T) int32 in [0, S): the token's row of `probability`; absent: row 0
  ConstTensor importance;   // (E): the sum of an expert's weights
  ConstTensor z;            // (1): the square of logsumexp(logits)
};

// Computes d_logits (overwritten) from the gradients of the weights and of the losses. The choice
// itself has no gradient. `experts` are those of router_forward(), before any pair was dropped.
void router_backward(Ctx& ctx, const Tensor& d_logits, const ConstTensor& d_weights,
                     const ConstTensor& scores, const ConstTensor& logits,
                     const ConstTensor& experts, const RouterLossGradients& losses,
                     const RouterArgs& args);

}  // namespace trireme
