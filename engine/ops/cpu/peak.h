// Loops that do nothing but multiply and add in registers, or read memory.
#pragma once

#include "engine/core/dtype.h"
#include "engine/ops/cpu/isa.h"

namespace trireme::cpu {

struct PeakLoop {
  int64_t rounds = 0;
  double operations = 0;  // written: floating point operations of all threads
  float sink = 0;         // written: depends on every result, so that none is optimised away
};

// T is float, or bf16 for the processor's bfloat16 dot product; the latter may be called
// only if cpu_has_avx512_bf16(), and is the float loop below AVX-512.
TRIREME_CPU_KERNEL(multiply_add_loop, (PeakLoop & loop, int threads))

// sink += every element of data (n)
TRIREME_CPU_KERNEL(read_loop, (const T* data, int64_t n, T& sink, int threads))

}  // namespace trireme::cpu
