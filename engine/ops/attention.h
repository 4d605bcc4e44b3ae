// Causal multi-head attention over packed sequences, exact, blocked with an online softmax (Milakov &
// Gimelshein 2018; FlashAttention, Dao et al. 2022): memory is linear in the sequence length.
//
//   out[t, h] = sum_s softmax_s(scale * q[t, h] . k[s, h']) v[s, h'],   h' = h / (H / Hkv)
// over the keys s of t's sequence that t may see. Sequence n holds queries cu_q[n] .. cu_q[n+1] and keys
// cu_k[n] .. cu_k[n+1]; its last query sees its last key, so query i of Lq sees keys j <= i + Lk - Lq.
// window > 0 keeps only the last `window` of those. causal = false: every query sees every key of its
// sequence (no window then).
//
//   q, out, dq, dout  (T, H, D)      unit stride in D, any stride in T and H (slices of packed QKV)
//   k, v, dk, dv      (Tk, Hkv, D)   likewise; H is a multiple of Hkv
//   lse               (H, T)         float32 (float64 for float64): log-sum-exp of the scaled scores
//   cu_q, cu_k        (N + 1)        int32, non-decreasing, from 0; at most T and Tk. Rows past the
//                                    last offset are padding: out and dq are zeroed there, lse is -inf.
// One float dtype for q, k, v, out and gradients; sums are float32 (float64 for float64). A query that
// sees no key gives out = 0 and lse = -inf.
// Dropout of the probabilities: the mask of (query, key) in head h is word
//   (global_row[t] * H + h) * 2^24 + (position of the key in its sequence) of args.key;
// where uniform_from_word(word) >= dropout the probability is kept and divided by 1 - dropout.
// A result depends on nothing but its own sequence: not on the number of threads, nor on what other
// sequences are packed beside it.
#pragma once

#include "engine/ops/context.h"

namespace trireme {

struct AttentionArgs {
  double scale = 1.0;  // usually 1 / sqrt(D)
  bool causal = true;
  int64_t window = 0;  // 0: unlimited
  double dropout = 0.0;
  RandomKey key;
  ConstTensor global_row;  // (T) int64, needed when dropout > 0
};

void attention_forward(Ctx& ctx, const Tensor& out, const Tensor& lse, const ConstTensor& q,
                       const ConstTensor& k, const ConstTensor& v, const ConstTensor& cu_q,
                       const ConstTensor& cu_k, const AttentionArgs& args);

// dq, dk, dv overwrite; none may alias an input. Deterministic for any number of threads.
void attention_backward(Ctx& ctx, const Tensor& dq, const Tensor& dk, const Tensor& dv,
                        const ConstTensor& dout, const ConstTensor& out, const ConstTensor& lse,
                        const ConstTensor& q, const ConstTensor& k, const ConstTensor& v,
                        const ConstTensor& cu_q, const ConstTensor& cu_k,
                        const AttentionArgs& args);

}  // namespace trireme
