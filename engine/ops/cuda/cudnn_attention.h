// Attention by cuDNN's fused engines, where they do the case: float16 or bfloat16 heads of at most
// 128 elements, in sequences of one length that the caller knows (AttentionArgs::uniform_length) or
// of which it knows the longest (AttentionArgs::longest), each query's keys those of its own
// sequence up to it, or all. No dropout, window or segments.
// Plans are made once per shape, which takes about a second, in the planning run that comes before
// where there is one; the workspace is the object's own, grown when a plan is made: before work is
// captured into a graph, each shape must have its plan.
#pragma once

#include "engine/device/context.h"
#include "engine/ops/cpu/attention.h"

namespace trireme::cuda {

// Sets gpu.attention; gpu.no_attention instead where the library is missing or refuses this device,
// or this was built without its headers.
void open_attention(Context& gpu);

// False, and nothing done, for a case that is not cuDNN's.
template <class T>
bool library_attention_forward(Context& gpu, const cpu::AttentionForward<T>& a);
// a.scratch: (heads, tokens) elements, used with sequences of unequal lengths.
template <class T>
bool library_attention_backward(Context& gpu, const cpu::AttentionBackward<T>& a);
// Makes the plan of the case and takes its workspace, so that neither comes in a step, and the
// memory that is left for other things is known before. Reads no operand.
template <class T>
void plan_library_attention(Context& gpu, const cpu::AttentionForward<T>& a);
template <class T>
void plan_library_attention(Context& gpu, const cpu::AttentionBackward<T>& a);

}  // namespace trireme::cuda
