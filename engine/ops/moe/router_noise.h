// Noisy top-k gating (Shazeer et al. 2017, section 2.1 and appendix A).
//
//   H_te   = l_te + noise_te sigma_te,  sigma = softplus(r) + 0.01
//   noise  standard normal number rows[t] E + e of the key: a function of the global token
//   P_te   = Phi((l_te - tau_te) / sigma_te): the probability that e is among the k best of token t when
//            its own noise is drawn again; tau is the k-th largest H of the other experts
//   load_e = sum_t P_te, a smooth stand-in for the number of tokens
// The 0.01 bounds P's slope where a trained r has made the noise vanish. With k = E every P is 1.
//
//   logits, raw (r), noise, noisy (H)   (T, E)  float32 or float64
//   rows (T) int64   valid (T) uint8, optional   load (E) float64
#pragma once

#include "engine/ops/context.h"

namespace trireme {

void noisy_logits(Ctx& ctx, const Tensor& noisy, const Tensor& noise, const ConstTensor& logits,
                  const ConstTensor& raw, const ConstTensor& rows, const RandomKey& key);

// load += the sums over these tokens, in their order; on a GPU in an order that the sizes fix.
void noisy_load(Ctx& ctx, const Tensor& load, const ConstTensor& noisy, const ConstTensor& logits,
                const ConstTensor& raw, const ConstTensor& valid, int64_t k);

// d_logits holds the gradient by H and becomes that by l; d_raw is overwritten. d_load (E) float64:
// the gradient of the loss by load.
void noisy_backward(Ctx& ctx, const Tensor& d_logits, const Tensor& d_raw, const ConstTensor& noise,
                    const ConstTensor& noisy, const ConstTensor& logits, const ConstTensor& raw,
                    const ConstTensor& d_load, const ConstTensor& valid, int64_t k);

}  // namespace trireme
