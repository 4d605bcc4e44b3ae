// gemm_rows.h for bfloat16 by the processor's matrix tiles (amx_rows.h).
#pragma once

#include "engine/ops/cpu/gemv.h"

namespace trireme::cpu {

// bfloat16 numbers of x (m, k) as it is packed: tiles of 16 rows of 32 columns.
constexpr int64_t packed_tiles(int64_t m, int64_t k) {
  return (m + 15) / 16 * 16 * packed_columns(k);
}

namespace avx512 {
// As gemm_rows(), with a.n of at least 16; a.x32 is scratch of packed_tiles() bfloat16 numbers.
// Only if may_use_amx_bf16().
void gemm_amx(const Gemv<bf16>& a, int threads);
}  // namespace avx512

}  // namespace trireme::cpu
