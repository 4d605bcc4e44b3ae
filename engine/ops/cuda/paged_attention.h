// Kernels of engine/ops/paged_attention.h on a GPU.
#pragma once

#include "engine/device/context.h"
#include "engine/ops/cpu/paged_attention.h"

namespace trireme::cuda {

// Pools of T, or of codes, of which `pools` has them and their scales; not of double.
template <class T>
TRIREME_CUDA_DECL void paged_attention(Context& gpu, const cpu::PagedAttention<T>& a,
                                       const cpu::PagedPools& pools);
template <class T>
TRIREME_CUDA_DECL void paged_append(Context& gpu, const cpu::PagedRows<T>& a,
                                    const cpu::PagedPools& pools);
template <class T>
TRIREME_CUDA_DECL void paged_gather(Context& gpu, const cpu::PagedRows<T>& a);

// The parts of paged_attention with tensor cores, before they are merged; T is bf16 or f16. False,
// with nothing done: heads of more than 128 elements, or rows that do not lie at multiples of 16
// bytes.
template <class T>
bool mma_paged_attention(Context& gpu, const cpu::PagedAttention<T>& a,
                         const cpu::PagedPools& pools);

}  // namespace trireme::cuda
