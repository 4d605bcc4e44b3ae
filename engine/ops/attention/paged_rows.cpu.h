// Loads of KV pool rows, widened to the compute type.
#pragma once

#include "engine/core/float8.h"
#include "engine/ops/attention/attention_tile.cpu.h"
#include "engine/ops/attention/paged_attention.kernels.h"
#include "engine/ops/backend/load_wide.cpu.h"

namespace trireme::cpu::TRIREME_ISA {

// One 8-bit code, as an element type of load_pool().
template <KvCodes kCodes>
struct Code {
  static constexpr KvCodes kKind = kCodes;
  uint8_t bits;
};

// One vector of code values, unscaled. An fp8_e5m2 code is the upper byte of the same number in
// float16. An fp8_e4m3 code, shifted into place, is a float16 of 2^-8 times its value: the exponent
// biases are 7 and 15.
TRIREME_INLINE Vec<float> load_pool(const Code<KvCodes::kInt8>* p) {
#if defined(TRIREME_ISA_avx512)
  __m128i c;
  __builtin_memcpy(&c, p, sizeof c);
  return _mm512_maskz_cvtepi32_ps(0xffff, _mm512_maskz_cvtepi8_epi32(0xffff, c));
#elif defined(TRIREME_ISA_avx2)
  return _mm256_cvtepi32_ps(
      _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
#else
  Vec<float> v;
  for (int i = 0; i < kLanes<float>; ++i) v[i] = static_cast<float>(static_cast<int8_t>(p[i].bits));
  return v;
#endif
}

template <KvCodes kCodes>
TRIREME_INLINE Vec<float> load_pool(const Code<kCodes>* p) {
  constexpr bool kE4M3 = kCodes == KvCodes::kE4M3;
#if defined(TRIREME_ISA_avx512)
  __m128i c;
  __builtin_memcpy(&c, p, sizeof c);
  const __m256i wide = _mm256_cvtepi8_epi16(c);
  const __m256i half =
      kE4M3 ? _mm256_and_si256(_mm256_slli_epi16(wide, 7), _mm256_set1_epi16(-0x4001))
            : _mm256_slli_epi16(wide, 8);
  const Vec<float> v = _mm512_maskz_cvtph_ps(0xffff, half);
  return kE4M3 ? v * 256.0f : v;
#elif defined(TRIREME_ISA_avx2)
  const __m128i wide = _mm_cvtepi8_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  const __m128i half = kE4M3 ? _mm_and_si128(_mm_slli_epi16(wide, 7), _mm_set1_epi16(-0x4001))
                             : _mm_slli_epi16(wide, 8);
  const Vec<float> v = _mm256_cvtph_ps(half);
  return kE4M3 ? v * 256.0f : v;
#else
  using F = std::conditional_t<kE4M3, fp8_e4m3, fp8_e5m2>;
  Vec<float> v;
  for (int i = 0; i < kLanes<float>; ++i)
    v[i] = static_cast<float>(__builtin_bit_cast(F, p[i].bits));
  return v;
#endif
}

template <class P>
TRIREME_INLINE Vec<compute_t<P>> load_pool(const P* p) {
  return load_wide(p);
}

// to[i] = from[i] for i < width, then zeros up to a multiple of kLanes<C>.
template <class P, class C>
TRIREME_INLINE void widen_row(C* to, const P* from, int64_t width) {
  constexpr int kN = kLanes<C>;
  int64_t d = 0;
  for (; d + kN <= width; d += kN) store(to + d, load_pool(from + d));
  if (d == width) return;
  P part[kN] = {};
  __builtin_memcpy(static_cast<void*>(part), from + d, static_cast<size_t>(width - d) * sizeof(P));
  store(to + d, load_pool(part));
}

// Calls f.operator()<P>() with the element type of the pool, which is double if and only if C is.
template <class C, class F>
TRIREME_INLINE void for_pool_type(const KvType& type, F&& f) {
  if constexpr (std::is_same_v<C, double>) {
    f.template operator()<double>();
  } else {
    switch (type.codes) {
      case KvCodes::kInt8: return f.template operator()<Code<KvCodes::kInt8>>();
      case KvCodes::kE4M3: return f.template operator()<Code<KvCodes::kE4M3>>();
      case KvCodes::kE5M2: return f.template operator()<Code<KvCodes::kE5M2>>();
      case KvCodes::kNone: break;
    }
    if (type.dtype == DType::kF32) return f.template operator()<float>();
    if (type.dtype == DType::kBF16) return f.template operator()<bf16>();
    f.template operator()<f16>();
  }
}

}  // namespace trireme::cpu::TRIREME_ISA
