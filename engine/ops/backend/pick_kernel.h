// TRIREME_KERNEL(rmsnorm_forward<T>)(args, threads): calls the kernel of the active instruction
// set. A set that this build lacks is never active; its entries in the table are portable kernels.
#pragma once

#include "engine/core/built_isas.h"
#include "engine/core/cpu.h"

namespace trireme::cpu {

template <class F>
F pick_isa(F avx512, F avx2, F portable) {
  switch (active_isa()) {
    case Isa::kAvx512: return avx512;
    case Isa::kAvx2: return avx2;
    case Isa::kPortable: break;
  }
  return portable;
}

}  // namespace trireme::cpu

#if TRIREME_BUILT_AVX512
#define TRIREME_AVX512_KERNEL(...) &::trireme::cpu::avx512::__VA_ARGS__
#else
#define TRIREME_AVX512_KERNEL(...) &::trireme::cpu::portable::__VA_ARGS__
#endif
#if TRIREME_BUILT_AVX2
#define TRIREME_AVX2_KERNEL(...) &::trireme::cpu::avx2::__VA_ARGS__
#else
#define TRIREME_AVX2_KERNEL(...) &::trireme::cpu::portable::__VA_ARGS__
#endif
#define TRIREME_KERNEL(...)                                                                      \
  ::trireme::cpu::pick_isa(TRIREME_AVX512_KERNEL(__VA_ARGS__), TRIREME_AVX2_KERNEL(__VA_ARGS__), \
                           &::trireme::cpu::portable::__VA_ARGS__)
