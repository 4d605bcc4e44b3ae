#include "engine/ops/gemm/gemm_dot.cpu.h"

#if defined(TRIREME_ISA_avx512)

#include "engine/core/parallel_for.h"
#include "engine/ops/backend/steps.cpu.h"

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512bf16"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512bf16")
#endif

#include "engine/ops/gemm/gemm_tile.cpu.h"

namespace trireme::cpu::avx512 {
namespace {

struct DotProducts {
  using Weight = bf16;
  using Row = bf16;
  using Operand = __m512bh;
  static constexpr int kParts = 1;
  template <int kPart>
  TRIREME_INLINE static Operand weight(const bf16* w) {
    Operand step;
    __builtin_memcpy(&step, w, sizeof step);
    return step;
  }
  template <int kPart>
  TRIREME_INLINE static Operand row(const bf16* x) {
    return weight<kPart>(x);
  }
  TRIREME_INLINE static Floats add(Operand w, Operand x, Floats sum) {
    return _mm512_dpbf16_ps(sum, w, x);
  }
  TRIREME_INLINE static void pack(bf16* to, const bf16* step) {
    __builtin_memcpy(static_cast<void*>(to), step, kStep * sizeof(bf16));
  }
};

}  // namespace

void gemm_dot(const Gemv<bf16>& a, int threads) { multiply_rows<DotProducts>(a, threads); }

}  // namespace trireme::cpu::avx512

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

#endif
