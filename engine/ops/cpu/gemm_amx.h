// gemm_rows.h for bfloat16 by the processor's matrix tiles (amx_rows.h).
#pragma once

#include "engine/ops/cpu/gemv.h"

namespace trireme::cpu::avx512 {

// As gemm_rows(), with a.m of at least 8 and a.n of at least 16. Only if may_use_amx_bf16().
void gemm_amx(const Gemv<bf16>& a, int threads);

}  // namespace trireme::cpu::avx512
