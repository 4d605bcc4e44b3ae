// Replacement of simd.cpu.h's load() for kernels that are bound by loads of bfloat16: with AVX2,
// GCC 12 compiles load() to four shuffles.
#pragma once

#include "engine/ops/backend/simd.cpu.h"

namespace trireme::cpu::TRIREME_ISA {

template <class T>
TRIREME_INLINE Vec<compute_t<T>> load_wide(const T* p) {
#if defined(TRIREME_ISA_avx2)
  if constexpr (std::is_same_v<T, bf16>) {
    __m128i half;
    __builtin_memcpy(&half, p, sizeof half);
    return __builtin_bit_cast(Vec<float>, _mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
  }
#endif
  return load(p);
}

}  // namespace trireme::cpu::TRIREME_ISA
