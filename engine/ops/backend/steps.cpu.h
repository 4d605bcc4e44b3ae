// Loads of matrix rows in steps: kStep columns in two registers of float32.
//
// For bfloat16 the first register has the even and the second the odd columns, each widened by one
// instruction: half of what widening neighbours costs. Products summed over the columns are correct
// if both operands are loaded this way.
#pragma once

#include "engine/ops/backend/simd.cpu.h"

namespace trireme::cpu::TRIREME_ISA {

inline constexpr int64_t kStep = 2 * kLanes<float>;  // columns

struct Step {
  Vec<float> first, second;
};

// Loads the step at p, reading memory once. For products bound by loads; register tiles, which have
// no room for both halves, use load_half_step().
template <class T>
TRIREME_INLINE Step load_step(const T* p) {
  if constexpr (std::is_same_v<T, bf16>) {
    Vec<uint32_t> two;
    __builtin_memcpy(&two, p, sizeof two);
#if defined(TRIREME_ISA_avx512) || defined(TRIREME_ISA_avx2)
    asm("" : "+v"(two));  // else GCC 12 reads it again for the mask
#endif
    return {__builtin_bit_cast(Vec<float>, two << 16),
            __builtin_bit_cast(Vec<float>, two & 0xffff0000u)};
  } else {
    return {load(p), load(p + kLanes<float>)};
  }
}

// Half 0 or 1 of the step at p.
template <int kHalf, class T>
TRIREME_INLINE Vec<float> load_half_step(const T* p) {
  if constexpr (std::is_same_v<T, bf16>) {
    Vec<uint32_t> two;
    __builtin_memcpy(&two, p, sizeof two);
    return __builtin_bit_cast(Vec<float>, kHalf == 0 ? two << 16 : two & 0xffff0000u);
  } else {
    return load(p + kHalf * kLanes<float>);
  }
}

// Copies the first n columns at p to `step` and sets the others to 0.
template <class T>
TRIREME_INLINE void pad_step(T (&step)[kStep], const T* p, int64_t n) {
  for (int64_t i = 0; i < kStep; ++i) step[i] = i < n ? p[i] : T{};
}

}  // namespace trireme::cpu::TRIREME_ISA
