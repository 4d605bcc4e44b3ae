// How CPU kernels exist once per instruction set.
//
// Every .cpp in engine/ops/cpu/ is compiled three times, with TRIREME_ISA = avx512, avx2, portable
// and the matching compiler flags. A kernel header declares
//     TRIREME_CPU_KERNEL(rmsnorm_forward, (const RmsNormForward<T>& a, int threads))
// which declares `template <class T> void rmsnorm_forward(...)` in each of the three namespaces;
// the .cpp defines it inside `namespace trireme::cpu::TRIREME_ISA` and instantiates it explicitly.
// An op calls TRIREME_KERNEL(rmsnorm_forward<T>)(args, threads).
//
// Kernels take raw pointers and sizes. They include no header with ordinary inline functions
// (tensor.h, <vector>, ...): the linker keeps one copy of such a function, and that copy may hold
// instructions that this machine lacks. Inline helpers are [[gnu::always_inline]] or live inside
// namespace trireme::cpu::TRIREME_ISA. tests/house checks the object files for it.
#pragma once

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

#define TRIREME_CPU_KERNEL(name, ...) \
  namespace avx512 {                  \
  template <class T>                  \
  void name __VA_ARGS__;              \
  }                                   \
  namespace avx2 {                    \
  template <class T>                  \
  void name __VA_ARGS__;              \
  }                                   \
  namespace portable {                \
  template <class T>                  \
  void name __VA_ARGS__;              \
  }

#define TRIREME_KERNEL(...)                                      \
  ::trireme::cpu::pick_isa(&::trireme::cpu::avx512::__VA_ARGS__, \
                           &::trireme::cpu::avx2::__VA_ARGS__,   \
                           &::trireme::cpu::portable::__VA_ARGS__)
