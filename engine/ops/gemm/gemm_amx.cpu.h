// gemm_rows.cpu.h for bfloat16 with the processor's matrix tiles (amx_rows.cpu.h).
#pragma once

#include "engine/ops/gemm/gemv.cpu.h"

namespace trireme::cpu::avx512 {

// As gemm_rows(), for a.n of at least 16; a.packed_x is scratch of packed_tiles() bfloat16 numbers.
// Only if may_use_amx_bf16() (engine/core/amx.h).
void gemm_amx(const Gemv<bf16>& a, int threads);

}  // namespace trireme::cpu::avx512
