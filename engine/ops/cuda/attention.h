// GPU kernels of engine/ops/attention.h, with the arguments of the CPU kernels. a.items is not
// used; a.scratch is (heads, tokens) elements in the backward, unused in the forward. Heads of more
// than kWidestHead elements have no kernel.
#pragma once

#include "engine/device/context.h"
#include "engine/ops/cpu/attention.h"

namespace trireme::cuda {

inline constexpr int64_t kWidestHead = 256;

// Use the fastest of the kernels below that supports the case.
template <class T>
TRIREME_CUDA_DECL void attention_forward(Context& gpu, const cpu::AttentionForward<T>& a);
template <class T>
TRIREME_CUDA_DECL void attention_backward(Context& gpu, const cpu::AttentionBackward<T>& a);

// For a planning run, whose operands have addresses that must not be read: a library prepares its
// plan and memory.
template <class T>
TRIREME_CUDA_DECL void plan_attention(Context& gpu, const cpu::AttentionForward<T>& a);
template <class T>
TRIREME_CUDA_DECL void plan_attention(Context& gpu, const cpu::AttentionBackward<T>& a);

// Any case, without tensor cores.
template <class T>
void blocked_attention_forward(Context& gpu, const cpu::AttentionForward<T>& a);
template <class T>
void blocked_attention_backward(Context& gpu, const cpu::AttentionBackward<T>& a);

// With tensor cores; T is bf16 or f16. False, with nothing done, for heads of more than 128
// elements, or rows of an operand that are not 16-byte aligned.
template <class T>
bool mma_attention_forward(Context& gpu, const cpu::AttentionForward<T>& a);
// a.scratch must have been computed.
template <class T>
bool mma_attention_backward(Context& gpu, const cpu::AttentionBackward<T>& a);

// out = 0 and lse = -inf in all rows; likewise the gradients: initial values for segments.
template <class T>
void clear_attention(Context& gpu, const cpu::AttentionForward<T>& a);
template <class T>
void clear_attention(Context& gpu, const cpu::AttentionBackward<T>& a);
// a.scratch[h, t] = sum over d of dout[t, h, d] * out[t, h, d].
template <class T>
void attention_delta(Context& gpu, const cpu::AttentionBackward<T>& a);

}  // namespace trireme::cuda
