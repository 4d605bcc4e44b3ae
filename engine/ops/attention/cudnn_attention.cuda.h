// Attention by cuDNN's fused engines, for the cases they support: float16 or bfloat16 heads of at
// most 128 elements, in sequences of one length known to the caller (AttentionArgs::uniform_length)
// or with a known maximum (AttentionArgs::longest), each query attending to the keys of its own
// sequence up to itself, or to all of them. No dropout, window or segments. Plans are created once
// per shape, which takes about a second, in the preceding planning run if there is one; the
// workspace is owned by the object and grows when a plan is created: before work is captured into a
// graph, each shape must have its plan.
#pragma once

#include "engine/device/context.h"
#include "engine/ops/attention/attention.kernels.h"

namespace trireme::cuda {

// Sets gpu.attention, or gpu.no_attention if the library is missing or rejects this device, or this
// was built without its headers.
void open_attention(Context& gpu);

// False, with nothing done, for a case that cuDNN does not support.
template <class T>
bool library_attention_forward(Context& gpu, const cpu::AttentionForward<T>& a);
// a.scratch: (heads, tokens) elements, used with sequences of unequal lengths.
template <class T>
bool library_attention_backward(Context& gpu, const cpu::AttentionBackward<T>& a);
// Creates the plan and allocates its workspace, so that neither happens in a step, and the memory
// left for other purposes is known before. Reads no operand.
template <class T>
void plan_library_attention(Context& gpu, const cpu::AttentionForward<T>& a);
template <class T>
void plan_library_attention(Context& gpu, const cpu::AttentionBackward<T>& a);

}  // namespace trireme::cuda
