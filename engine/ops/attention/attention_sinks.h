// Attention sinks: one learned logit per head that takes part in every softmax and has the value 0
// (OpenAI 2025, "gpt-oss-120b & gpt-oss-20b Model Card"; Xiao et al. 2024, "Efficient Streaming
// Language Models with Attention Sinks"). They are applied to finished attention
// (engine/ops/attention/attention.h), for the sink s[h] of a head:
//
//   lse'[h, t] = log(exp(lse[h, t]) + exp(s[h]))
//   out'[t, h] = out[t, h] exp(lse[h, t] - lse'[h, t])
//
// With out' and lse' attention_backward() gives the gradients of queries, keys and values. That of
// the sink is
//   d_sinks[h] = -sum over t of exp(s[h] - lse'[h, t]) (dout'[t, h] . out'[t, h])
//
//   out, dout  (T, H, D)  unit stride in D, any stride in T and H
//   lse        (H, T)     float32 (float64 for float64); -inf (a query without keys) is unchanged,
//                         and so is out
//   sinks      (H)        dtype of out
//   d_sinks    (H)        float32 (float64 for float64); added to if `accumulate`, else overwritten
#pragma once

#include "engine/ops/context.h"

namespace trireme {

// Replaces out and lse by out' and lse'.
void attention_sinks_forward(Ctx& ctx, const Tensor& out, const Tensor& lse,
                             const ConstTensor& sinks);

// out, lse: the results of attention_sinks_forward(). Partial sums over fixed blocks of tokens are
// added in order, so the result does not depend on the number of threads.
void attention_sinks_backward(Ctx& ctx, const Tensor& d_sinks, const ConstTensor& dout,
                              const ConstTensor& out, const ConstTensor& lse,
                              const ConstTensor& sinks, bool accumulate);

}  // namespace trireme
