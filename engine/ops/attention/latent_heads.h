// Keys and values of multi-head latent attention (MLA; DeepSeek-AI 2024, "DeepSeek-V2", section
// 2.1), expanded to the layout of engine/ops/attention/attention.h: k and v of one width D = Dn +
// Dr. Dn elements of a key have no position, the other Dr are one rotary key shared by all heads.
// The Dv <= D elements of a value are followed by zeros, which add nothing to any sum:
//
//   k[t, h] = [ kv[t, h, :Dn] | k_rope[t] ]        v[t, h] = [ kv[t, h, Dn:] | 0 ]
//
//   kv, d_kv          (T, H, Dn + Dv)  output of the up-projection
//   k_rope, d_k_rope  (T, Dr)          rotated
//   k, v, dk, dv      (T, H, D)
// All contiguous, of one float dtype. No operand may alias another.
#pragma once

#include "engine/ops/context.h"

namespace trireme {

void latent_heads_forward(Ctx& ctx, const Tensor& k, const Tensor& v, const ConstTensor& kv,
                          const ConstTensor& k_rope);

// Overwrites d_kv and d_k_rope. d_k_rope[t] is the sum over the heads, in their order, in float32
// (float64 for float64), rounded once.
void latent_heads_backward(Ctx& ctx, const Tensor& d_kv, const Tensor& d_k_rope,
                           const ConstTensor& dk, const ConstTensor& dv);

}  // namespace trireme
