// Loops of measure_peak() (engine/ops/gemm/peak.h), which only multiply and add in registers, or
// only read or update memory.
#pragma once

#include "engine/core/dtype.h"
#include "engine/ops/backend/isa.h"

namespace trireme::cpu {

struct PeakLoop {
  int64_t rounds = 0;     // of each thread
  double operations = 0;  // written: floating point operations of all threads
  float sink = 0;         // written: depends on the results, so that none is optimized away
};

// Multiply-adds in registers. T is float, or bf16 for the processor's bfloat16 dot product, which
// requires cpu_has_avx512_bf16(). Variants below AVX-512 run the float loop for bf16 too.
TRIREME_CPU_KERNEL(multiply_add_loop, (PeakLoop & loop, int threads))

// Adds every element of data (n) to sink. streams: 1, 4 or 8 positions that a thread reads in turn.
TRIREME_CPU_KERNEL(read_loop, (const T* data, int64_t n, int streams, T& sink, int threads))

// Halves every element of data (n). streams: 1 or 4 positions, as above.
TRIREME_CPU_KERNEL(halve_loop, (T * data, int64_t n, int streams, int threads))

namespace avx512 {
// AMX products of a 16x32 by a 32x16 bfloat16 tile, all elements 1, accumulated into four tiles per
// round. Only if may_use_amx_bf16(). sink: 64 for each round and thread.
void tile_product_loop(PeakLoop& loop, int threads);
}  // namespace avx512

}  // namespace trireme::cpu
