// Vectors and elementary functions for CPU kernels, one set per instruction set
// (engine/ops/backend/isa.h).
//
//   Vec<float>, Vec<double>   GCC vector types as wide as a register: + - * / < ?: work per element
//   load, store               from and to float, double, bf16, f16; *_partial for the last few
//   splat, sum, transpose
//   fast_exp, fast_exp2_small, fast_sigmoid, fast_tanh, capped
//                             templates for a scalar or a vector, without branches, so that a plain
//                             loop over them vectorizes too
//
// Infinities and NaN keep their meaning unless noted. All helpers are always inlined: the linker
// cannot use a copy compiled for one instruction set in another.
#pragma once

#if defined(TRIREME_ISA_avx512) || defined(TRIREME_ISA_avx2)
#include <immintrin.h>
#endif

#include "engine/core/dtype.h"
#include "engine/ops/backend/isa.h"

#define TRIREME_INLINE [[gnu::always_inline]] inline

namespace trireme::cpu::TRIREME_ISA {

#if defined(TRIREME_ISA_avx512)
inline constexpr int kVectorBytes = 64;
#elif defined(TRIREME_ISA_avx2)
inline constexpr int kVectorBytes = 32;
#else
inline constexpr int kVectorBytes = 16;
#endif

template <class T>
struct VecOf {
  typedef T Type __attribute__((vector_size(kVectorBytes)));
};
template <class T>
using Vec = typename VecOf<T>::Type;
template <class T>
inline constexpr int kLanes = kVectorBytes / static_cast<int>(sizeof(T));

// Scalar: element type. Int: integers of the same width and number, for bit patterns and masks.
template <class V>
struct Traits;
template <>
struct Traits<float> {
  using Scalar = float;
  using Int = int32_t;
};
template <>
struct Traits<double> {
  using Scalar = double;
  using Int = int64_t;
};
template <>
struct Traits<Vec<float>> {
  using Scalar = float;
  using Int = Vec<int32_t>;
};
template <>
struct Traits<Vec<double>> {
  using Scalar = double;
  using Int = Vec<int64_t>;
};

template <class V>
TRIREME_INLINE V splat(typename Traits<V>::Scalar x) {
  return x - V{};  // x - 0, not 0 + x: keeps the sign of zero
}

// a b + c, rounded once if the instruction set can. (engine/ops/CMakeLists.txt disables contraction
// by the compiler, except for GCC 12 and older.)
template <class V>
TRIREME_INLINE V multiply_add(V a, V b, V c) {
#if defined(TRIREME_ISA_avx512)
  if constexpr (std::is_same_v<V, Vec<float>>) return _mm512_fmadd_ps(a, b, c);
  if constexpr (std::is_same_v<V, Vec<double>>) return _mm512_fmadd_pd(a, b, c);
#elif defined(TRIREME_ISA_avx2)
  if constexpr (std::is_same_v<V, Vec<float>>) return _mm256_fmadd_ps(a, b, c);
  if constexpr (std::is_same_v<V, Vec<double>>) return _mm256_fmadd_pd(a, b, c);
#endif
#if defined(TRIREME_ISA_avx512) || defined(TRIREME_ISA_avx2)
  if constexpr (std::is_same_v<V, float>) return __builtin_fmaf(a, b, c);
  if constexpr (std::is_same_v<V, double>) return __builtin_fma(a, b, c);
#endif
  return a * b + c;
}

// --- loads and stores ---------------------------------------------------------------------------

// GCC 12 converts vectors of _Float16 one by one, hence the intrinsics. The unmasked AVX-512 forms
// make it warn about an undefined operand.
TRIREME_INLINE Vec<float> load_half(const f16* p) {
#if defined(TRIREME_ISA_avx512)
  __m256i h;
  __builtin_memcpy(&h, p, sizeof h);
  return _mm512_maskz_cvtph_ps(0xffff, h);
#elif defined(TRIREME_ISA_avx2)
  __m128i h;
  __builtin_memcpy(&h, p, sizeof h);
  return _mm256_cvtph_ps(h);
#else
  Vec<float> v{};
  for (int i = 0; i < kLanes<float>; ++i)
    v[i] = static_cast<float>(__builtin_bit_cast(_Float16, p[i].bits));
  return v;
#endif
}
TRIREME_INLINE void store_half(f16* p, Vec<float> v) {
#if defined(TRIREME_ISA_avx512)
  const __m256i h = _mm512_maskz_cvtps_ph(0xffff, v, _MM_FROUND_TO_NEAREST_INT);
  __builtin_memcpy(static_cast<void*>(p), &h, sizeof h);
#elif defined(TRIREME_ISA_avx2)
  const __m128i h = _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT);
  __builtin_memcpy(static_cast<void*>(p), &h, sizeof h);
#else
  for (int i = 0; i < kLanes<float>; ++i)
    p[i].bits = __builtin_bit_cast(uint16_t, static_cast<_Float16>(v[i]));
#endif
}

template <class T>
TRIREME_INLINE Vec<compute_t<T>> load(const T* p) {
  if constexpr (std::is_same_v<T, compute_t<T>>) {
    Vec<T> v;
    __builtin_memcpy(&v, p, sizeof v);
    return v;
  } else if constexpr (std::is_same_v<T, bf16>) {
    typedef uint16_t Half __attribute__((vector_size(kVectorBytes / 2)));
    Half h;
    __builtin_memcpy(&h, p, sizeof h);
    return __builtin_bit_cast(Vec<float>, __builtin_convertvector(h, Vec<uint32_t>) << 16);
  } else {
    return load_half(p);
  }
}

// Rounds to nearest even like the constructors in engine/core/float16.h.
template <class T>
TRIREME_INLINE void store(T* p, Vec<compute_t<T>> v) {
  if constexpr (std::is_same_v<T, compute_t<T>>) {
    __builtin_memcpy(p, &v, sizeof v);
  } else if constexpr (std::is_same_v<T, bf16>) {
    typedef uint16_t Half __attribute__((vector_size(kVectorBytes / 2)));
    const auto u = __builtin_bit_cast(Vec<uint32_t>, v);
    const Vec<uint32_t> rounded = v == v ? u + 0x7fffu + ((u >> 16) & 1u) : u | 0x00400000u;
    const Half h = __builtin_convertvector(rounded >> 16, Half);
    __builtin_memcpy(static_cast<void*>(p), &h, sizeof h);
  } else {
    store_half(p, v);
  }
}

// The first n elements, at most all lanes. The other lanes of the loaded vector are zero; the other
// elements at p are neither read nor written.
template <class T>
TRIREME_INLINE Vec<compute_t<T>> load_partial(const T* p, int64_t n) {
  T part[kLanes<compute_t<T>>] = {};
  __builtin_memcpy(static_cast<void*>(part), p, static_cast<size_t>(n) * sizeof(T));
  return load(part);
}
template <class T>
TRIREME_INLINE void store_partial(T* p, int64_t n, Vec<compute_t<T>> v) {
  T part[kLanes<compute_t<T>>];
  store(part, v);
  __builtin_memcpy(static_cast<void*>(p), part, static_cast<size_t>(n) * sizeof(T));
}

// --- across the lanes ---------------------------------------------------------------------------

template <class V>
TRIREME_INLINE V iota() {
  V v;
  for (int i = 0; i < kLanes<typename Traits<V>::Scalar>; ++i)
    v[i] = static_cast<typename Traits<V>::Scalar>(i);
  return v;
}

template <class V>
using LaneNumbers = std::make_integer_sequence<int, kLanes<typename Traits<V>::Scalar>>;

// Adds to each lane the lane at distance kStep (lane number xor kStep), then likewise with kStep /
// 2 and so on down to 1.
template <int kStep, class V, int... kLane>
TRIREME_INLINE V add_partners(V v, std::integer_sequence<int, kLane...> lanes) {
  v += __builtin_shufflevector(v, v, (kLane ^ kStep)...);
  if constexpr (kStep > 1)
    return add_partners<kStep / 2>(v, lanes);
  else
    return v;
}

// Sum of the lanes, as a tree.
template <class V>
TRIREME_INLINE typename Traits<V>::Scalar sum(V v) {
  return add_partners<kLanes<typename Traits<V>::Scalar> / 2>(v, LaneNumbers<V>{})[0];
}

// a and b: rows r and r + kStep of a matrix. In both, exchanges the elements of the upper right and
// the lower left block of width kStep in every square of twice that width.
template <int kStep, class V, int... kLane>
TRIREME_INLINE void exchange_blocks(V& a, V& b, std::integer_sequence<int, kLane...>) {
  constexpr int kN = sizeof...(kLane);  // lanes of b count from here
  const V upper = __builtin_shufflevector(a, b, (kLane & kStep ? kLane - kStep + kN : kLane)...);
  b = __builtin_shufflevector(a, b, (kLane & kStep ? kLane + kN : kLane + kStep)...);
  a = upper;
}

// Transposes the square of lanes x lanes elements in `rows`.
template <class V, int kStep = 1>
TRIREME_INLINE void transpose(V (&rows)[kLanes<typename Traits<V>::Scalar>]) {
  constexpr int kN = kLanes<typename Traits<V>::Scalar>;
  if constexpr (kStep < kN) {
#pragma GCC unroll 16
    for (int i = 0; i < kN; ++i)
      if ((i & kStep) == 0) exchange_blocks<kStep>(rows[i], rows[i + kStep], LaneNumbers<V>{});
    transpose<V, kStep * 2>(rows);
  }
}

// --- elementary functions -----------------------------------------------------------------------

// 2^k for k in [-1023, 1023] (double) or [-127, 127] (float); the lowest k gives 0.
template <class V>
TRIREME_INLINE V power_of_two(typename Traits<V>::Int k) {
  if constexpr (std::is_same_v<typename Traits<V>::Scalar, double>)
    return __builtin_bit_cast(V, (k + 1023) << 52);
  else
    return __builtin_bit_cast(V, (k + 127) << 23);
}

// Adding it rounds to an integer, which is then in the lowest bits of the sum.
template <class S>
inline constexpr S kRoundingShift = std::is_same_v<S, double> ? S(0x1.8p52) : S(0x1.8p23);

// v unchanged, but opaque to the compiler, which therefore cannot fuse the product v with a sum.
// Fusing depends on the machine, and some results must be equal on all machines (8-bit codes,
// stored and compared in every bit).
template <class V>
TRIREME_INLINE V opaque(V v) {
#if defined(__x86_64__)
  asm("" : "+v"(v));
#else
  asm("" : "+m"(v));
#endif
  return v;
}

// Horner's rule; c[0] belongs to the highest power.
template <class V, class S, int N>
TRIREME_INLINE V polynomial(V x, const S (&c)[N]) {
  V p = splat<V>(c[0]);
#pragma GCC unroll 16
  for (int i = 1; i < N; ++i) p = multiply_add(p, x, splat<V>(c[i]));
  return p;
}

// e^r for |r| <= ln(2) / 2. float: minimax, relative error of the polynomial 2e-8. double: Taylor,
// 4e-18.
template <class V>
TRIREME_INLINE V exp_reduced(V r) {
  if constexpr (std::is_same_v<typename Traits<V>::Scalar, double>) {
    constexpr double kC[] = {1 / 6227020800.0,
                             1 / 479001600.0,
                             1 / 39916800.0,
                             1 / 3628800.0,
                             1 / 362880.0,
                             1 / 40320.0,
                             1 / 5040.0,
                             1 / 720.0,
                             1 / 120.0,
                             1 / 24.0,
                             1 / 6.0,
                             0.5,
                             1.0,
                             1.0};
    return polynomial(r, kC);
  } else {
    constexpr float kC[] = {1.384355128e-03f,
                            8.374235593e-03f,
                            4.166800901e-02f,
                            1.666643023e-01f,
                            4.999999404e-01f,
                            1.0f,
                            1.0f};
    return polynomial(r, kC);
  }
}

// e^x within 2 ulp for every x: 0 if it underflows, infinity if it overflows, NaN for NaN;
// subnormal results are rounded once more.
template <class V>
TRIREME_INLINE V fast_exp(V x) {
  using S = typename Traits<V>::Scalar;
  constexpr bool kDouble = std::is_same_v<S, double>;
  // Beyond these the result is 0 or infinity; the clamp keeps the exponent in range.
  const V low = splat<V>(kDouble ? S(-746) : S(-104)), high = splat<V>(kDouble ? S(710) : S(89));
  x = x < low ? low : x;
  x = x > high ? high : x;
  const V shifted = x * S(1.44269504088896340736) + kRoundingShift<S>;
  const V n = shifted - kRoundingShift<S>;
  // ln 2 in two parts; the first has trailing zeros, so that its product with n is exact.
  constexpr S kHigh = kDouble ? S(0x1.62e42fee00000p-1) : S(0x1.63p-1);
  constexpr S kLow = kDouble ? S(0x1.a39ef35793c76p-33) : S(-2.12194440054690583e-4);
  const V r = (x - n * kHigh) - n * kLow;
  using Int = typename Traits<V>::Int;
  const Int k =
      __builtin_bit_cast(Int, shifted) - __builtin_bit_cast(Int, splat<V>(kRoundingShift<S>));
  const Int half = k >> 1;  // 2^k itself may overflow or be subnormal
  return exp_reduced(r) * power_of_two<V>(half) * power_of_two<V>(k - half);
}

// 2^x for x <= 127: half the work of fast_exp, for a softmax whose maximum was subtracted.
// Results below 2^-126.5 (float) or 2^-1022.5 (double) are 0; -infinity gives 0, NaN gives NaN.
template <class V>
TRIREME_INLINE V fast_exp2_small(V x) {
  using S = typename Traits<V>::Scalar;
  using Int = typename Traits<V>::Int;
  const V low = splat<V>(std::is_same_v<S, double> ? S(-1023) : S(-127));
  x = x < low ? low : x;
  const V shifted = x + kRoundingShift<S>;
  const V r = x - (shifted - kRoundingShift<S>);
  const Int k =
      __builtin_bit_cast(Int, shifted) - __builtin_bit_cast(Int, splat<V>(kRoundingShift<S>));
  if constexpr (std::is_same_v<S, double>) {
    return exp_reduced(r * S(0.693147180559945309417)) * power_of_two<V>(k);
  } else {
    // 2^r for |r| <= 1/2, minimax, relative error 2e-8
    constexpr float kC[] = {1.535335177e-04f,
                            1.339887385e-03f,
                            9.618436918e-03f,
                            5.550332367e-02f,
                            2.402264774e-01f,
                            6.931471825e-01f,
                            1.0f};
    return polynomial(r, kC) * power_of_two<V>(k);
  }
}

// 1 / (1 + e^-x); 0 where e^-x overflows.
template <class V>
TRIREME_INLINE V fast_sigmoid(V x) {
  using S = typename Traits<V>::Scalar;
  return S(1) / (S(1) + fast_exp(-x));
}

// tanh: a Pade approximant near zero, (e^2x - 1) / (e^2x + 1) elsewhere; one division for both.
template <class V>
TRIREME_INLINE V fast_tanh(V x) {
  using S = typename Traits<V>::Scalar;
  constexpr bool kDouble = std::is_same_v<S, double>;
  const V magnitude = x < S(0) ? -x : x;
  const V bound = splat<V>(S(20));  // tanh is 1 to the last bit from here on
  const V e = fast_exp(S(2) * (magnitude > bound ? bound : magnitude));
  const V e_minus_one = e - S(1);
  const V z = x * x;
  V numerator, denominator;
  if constexpr (kDouble) {
    constexpr double kP[] = {1.0, 990.0, 135135.0, 4729725.0, 34459425.0};
    constexpr double kQ[] = {45.0, 13860.0, 945945.0, 16216200.0, 34459425.0};
    numerator = x * polynomial(z, kP);
    denominator = polynomial(z, kQ);
  } else {
    constexpr float kP[] = {1.0f, 105.0f, 945.0f};
    constexpr float kQ[] = {15.0f, 420.0f, 945.0f};
    numerator = x * polynomial(z, kP);
    denominator = polynomial(z, kQ);
  }
  const auto large = magnitude > S(0.625);  // below, e - 1 would cancel
  const V signed_e = x < S(0) ? -e_minus_one : e_minus_one;
  numerator = large ? signed_e : numerator;
  denominator = large ? e + S(1) : denominator;
  return numerator / denominator;
}

// x under a soft cap: cap tanh(x / cap), for cap > 0.
template <class V>
TRIREME_INLINE V capped(V x, typename Traits<V>::Scalar cap) {
  return cap * fast_tanh(x / cap);
}

}  // namespace trireme::cpu::TRIREME_ISA
