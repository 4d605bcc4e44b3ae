// Ring self-attention (Li et al. 2023, "Sequence Parallelism: Long Sequence Training from System
// Perspective"; Liu et al. 2023, "Ring Attention with Blockwise Transformers"): queries stay,
// blocks of keys and values pass around the ring, and each step continues the online softmax.
//
// With N > 1 ranks, T local tokens, w bytes per element and C = T Hkv D w, the size of a rank's
// keys or values, each rank sends exactly
//   forward    2 (N - 1) C
//   backward   2 (N - 1) C   keys and values once more
//            + 2 N C'        their gradients, which follow them and return to their owner; C' is C
//                            in float32 (float64 for float64)
// The next block is transferred during the computation with the current one. Bits depend on N
// (order of additions) but not on threads.
#pragma once

#include "parallel/comm/communicator.h"
#include "parallel/context/context_plan.h"

namespace trireme {

// q, out (T, H, D); k, v (T, Hkv, D): local tokens, with adjacent heads; lse (H, T). Otherwise
// shapes, dtypes and strides as in engine/ops/attention/attention.h. Queries without keys give out
// = 0, lse = -inf. args.causal must be set. args.sinks: one per head of q.
void ring_attention_forward(Ctx& ctx, Communicator& ring, const Tensor& out, const Tensor& lse,
                            const ConstTensor& q, const ConstTensor& k, const ConstTensor& v,
                            const ContextPlan& plan, const AttentionArgs& args);

// Overwrites dq, dk, dv. args.d_sinks receives the sum over this rank's tokens only.
void ring_attention_backward(Ctx& ctx, Communicator& ring, const Tensor& dq, const Tensor& dk,
                             const Tensor& dv, const ConstTensor& dout, const ConstTensor& out,
                             const ConstTensor& lse, const ConstTensor& q, const ConstTensor& k,
                             const ConstTensor& v, const ContextPlan& plan,
                             const AttentionArgs& args);

}  // namespace trireme
