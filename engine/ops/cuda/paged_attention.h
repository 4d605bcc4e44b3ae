// Kernels of engine/ops/paged_attention.h on a GPU.
#pragma once

#include "engine/device/context.h"
#include "engine/ops/cpu/paged_attention.h"

namespace trireme::cuda {

// Pools of T, or of codes (not for double), which are in `pools` with their scales.
template <class T>
TRIREME_CUDA_DECL void paged_attention(Context& gpu, const cpu::PagedAttention<T>& a,
                                       const cpu::PagedPools& pools);
template <class T>
TRIREME_CUDA_DECL void paged_append(Context& gpu, const cpu::PagedRows<T>& a,
                                    const cpu::PagedPools& pools);
template <class T>
TRIREME_CUDA_DECL void paged_gather(Context& gpu, const cpu::PagedRows<T>& a);

// The parts of paged_attention with tensor cores, before they are merged; T is bf16 or f16. False,
// with nothing done, for heads of more than 128 elements, or rows that are not 16-byte aligned.
template <class T>
bool mma_paged_attention(Context& gpu, const cpu::PagedAttention<T>& a,
                         const cpu::PagedPools& pools);

}  // namespace trireme::cuda
