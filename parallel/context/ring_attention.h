// Ring self-attention (Li et al. 2023, "Sequence Parallelism: Long Sequence Training from System
// Perspective"; Liu et al. 2023, "Ring Attention with Blockwise Transformers"): queries stay,
// blocks of keys and values travel around the ring, and each step continues the online softmax.
//
// With N ranks, T local tokens and w bytes an element, C = T Hkv D w being a rank's keys or values,
// each rank sends exactly
//   forward    2 (N - 1) C
//   backward   2 (N - 1) C   keys and values once more
//            + 2 N C'        their gradients, which travel along and home; C' is C in float32
//                            (float64 for float64)
// The next block travels while this one is computed with. Bits depend on N (order of additions) but
// not on threads.
#pragma once

#include "parallel/comm/communicator.h"
#include "parallel/context/context_plan.h"

namespace trireme {

// q, out (T, H, D); k, v (T, Hkv, D) local tokens, with adjacent heads; lse (H, T). Shapes, dtypes
// and strides else as in engine/ops/attention.h. Queries without keys give out = 0, lse = -inf.
void ring_attention_forward(Ctx& ctx, Communicator& ring, const Tensor& out, const Tensor& lse,
                            const ConstTensor& q, const ConstTensor& k, const ConstTensor& v,
                            const ContextPlan& plan, const AttentionArgs& args);

// dq, dk, dv overwrite.
void ring_attention_backward(Ctx& ctx, Communicator& ring, const Tensor& dq, const Tensor& dk,
                             const Tensor& dv, const ConstTensor& dout, const ConstTensor& out,
                             const ConstTensor& lse, const ConstTensor& q, const ConstTensor& k,
                             const ConstTensor& v, const ContextPlan& plan,
                             const AttentionArgs& args);

}  // namespace trireme
