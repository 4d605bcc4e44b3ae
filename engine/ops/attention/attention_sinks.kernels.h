// Kernels of engine/ops/attention/attention_sinks.h.
#pragma once

#include "engine/core/device_memory.h"
#include "engine/ops/attention/attention.kernels.h"

namespace trireme::cpu {

template <class T>
struct SinksForward {
  HeadView<T> out;    // read and written
  compute_t<T>* lse;  // (heads, tokens), read and written
  const T* sinks;     // (heads)
  int64_t tokens, heads, width;
};

template <class T>
struct SinksBackward {
  using F = compute_t<T>;
  F *d_sinks, *partial;  // (heads); scratch (blocks, heads): sums of each block of tokens
  HeadView<const T> dout, out;
  const F* lse;                          // (heads, tokens), with the sinks
  const T* sinks;                        // (heads)
  int64_t tokens, heads, width, blocks;  // blocks: row_blocks() of engine/ops/rows/row_blocks.h
  bool accumulate;
};

TRIREME_CPU_KERNEL(attention_sinks_forward, (const SinksForward<T>& a, int threads))
TRIREME_CPU_KERNEL(attention_sinks_backward, (const SinksBackward<T>& a, int threads))

}  // namespace trireme::cpu

// GPU kernels, with the argument structures of the CPU kernels.
namespace trireme::cuda {

template <class T>
TRIREME_CUDA_DECL void attention_sinks_forward(Context& gpu, const cpu::SinksForward<T>& a);
template <class T>
TRIREME_CUDA_DECL void attention_sinks_backward(Context& gpu, const cpu::SinksBackward<T>& a);

}  // namespace trireme::cuda
