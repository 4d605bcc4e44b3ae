// gemm_rows.cpu.h for bfloat16 with the processor's dot products (AVX-512 BF16): half the
// operations, and no widening. Lane l of a register adds columns 2 l and 2 l + 1 of every 32.
// Subnormal numbers count as zero.
//
// Faster only if a dot product takes as long as a multiply-add (has_fast_bf16_dots() of
// engine/core/cpu.h).
#pragma once

#include "engine/ops/gemm/gemv.cpu.h"

namespace trireme::cpu::avx512 {

// As gemm_rows(). Only for processors with the instruction (cpu_has_avx512_bf16()).
void gemm_dot(const Gemv<bf16>& a, int threads);

}  // namespace trireme::cpu::avx512
