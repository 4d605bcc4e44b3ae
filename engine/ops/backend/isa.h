// Compilation of CPU kernels once per instruction set.
//
// Every .cpu.cpp of engine/ops is compiled once for each of avx512, avx2 and portable (or fewer,
// cmake/TriremeIsa.cmake), with TRIREME_ISA = that name and the matching compiler flags. A kernel
// header declares
//     TRIREME_CPU_KERNEL(rmsnorm_forward, (const RmsNormForward<T>& a, int threads))
// which declares `template <class T> void rmsnorm_forward(...)` in each of the three namespaces;
// the .cpu.cpp defines it inside `namespace trireme::cpu::TRIREME_ISA` and instantiates it
// explicitly. An op calls TRIREME_KERNEL(rmsnorm_forward<T>)(args, threads)
// (engine/ops/backend/pick_kernel.h).
//
// Kernels take raw pointers and sizes. They include no header with ordinary inline functions
// (tensor.h, <vector>, ...): the linker keeps one copy of such a function, which may contain
// instructions that this machine lacks. Inline helpers are [[gnu::always_inline]] or are in
// namespace trireme::cpu::TRIREME_ISA. tests/house/check_isa.py checks the object files.
#pragma once

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
