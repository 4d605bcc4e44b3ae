// Noisy top-k gating (Shazeer et al. 2017, section 2.1 and appendix A).
//
//   H_te   = l_te + noise_te sigma_te,  sigma = softplus(r) + 0.01
//   noise  standard normal number rows[t] E + e of the key, independent of the layout of ranks
//   P_te   = Phi((l_te - tau_te) / sigma_te): the probability that e is among the k best of token
//            t if its own noise is redrawn; tau is the k-th largest H of the other experts
//   load_e = sum_t P_te, a smooth approximation of the number of tokens
// The 0.01 bounds the slope of P when training drives softplus(r) to 0. With k = E every P is 1.
//
//   logits, raw (r), noise, noisy (H)   (T, E)  float32 or float64
//   rows   (T)  int64: global token index
//   valid  (T)  uint8, optional; tokens with 0 (padding) are not in load
//   load   (E)  float64
#pragma once

#include "engine/ops/context.h"

namespace trireme {

void noisy_logits(Ctx& ctx, const Tensor& noisy, const Tensor& noise, const ConstTensor& logits,
                  const ConstTensor& raw, const ConstTensor& rows, const RandomKey& key);

// load += the sums of P over the valid tokens, in order; on a GPU in an order that depends on the
// sizes and the number of multiprocessors.
void noisy_load(Ctx& ctx, const Tensor& load, const ConstTensor& noisy, const ConstTensor& logits,
                const ConstTensor& raw, const ConstTensor& valid, int64_t k);

// Converts d_logits (T, E) in place, from the gradient with respect to H to that with respect to l,
// including the gradient through load. d_raw (T, E), with respect to r, is overwritten. d_load (E)
// float64 is the gradient with respect to load.
void noisy_backward(Ctx& ctx, const Tensor& d_logits, const Tensor& d_raw, const ConstTensor& noise,
                    const ConstTensor& noisy, const ConstTensor& logits, const ConstTensor& raw,
                    const ConstTensor& d_load, const ConstTensor& valid, int64_t k);

}  // namespace trireme
