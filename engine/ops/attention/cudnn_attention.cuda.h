// Attention by cuDNN's fused engines, for the cases they support: float16 or bfloat16, heads of at
// most 128 elements (a multiple of 8), 16-byte aligned rows, as many queries as keys, causal or
// full attention within each sequence; no dropout, soft cap, segments, or window shorter than a
// sequence. The caller knows the length of all sequences (AttentionArgs::uniform_length), or a
// maximum (AttentionArgs::max_seqlen) and cuDNN is 9.6 or later. Without keep_lse this length must
// be 1024 tokens or more; a backward pass must not need too large a workspace.
//
// Plans are created once per shape, which takes about a second, in the preceding planning run if
// there is one. gpu.attention owns the workspace, which grows when a plan is created, so each shape
// must have its plan before work is captured into a CUDA graph.
#pragma once

#include "engine/device/context.h"
#include "engine/ops/attention/attention.kernels.h"

namespace trireme::cuda {

// Sets gpu.attention, or gpu.no_attention (the reason) if the library is missing or rejects this
// device, or the build had no cuDNN headers.
void open_attention(Context& gpu);

// Returns false, with nothing computed, for a case that cuDNN does not support.
template <class T>
bool library_attention_forward(Context& gpu, const cpu::AttentionForward<T>& a);
// a.scratch: (heads, tokens) elements, used with sequences of unequal lengths.
template <class T>
bool library_attention_backward(Context& gpu, const cpu::AttentionBackward<T>& a);
// Creates the plan and allocates its workspace before the first step, so that the memory left for
// other purposes is known. Reads no operand.
template <class T>
void plan_library_attention(Context& gpu, const cpu::AttentionForward<T>& a);
template <class T>
void plan_library_attention(Context& gpu, const cpu::AttentionBackward<T>& a);

}  // namespace trireme::cuda
