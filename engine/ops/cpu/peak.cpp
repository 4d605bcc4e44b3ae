#include "engine/ops/cpu/peak.h"

#include <omp.h>

#include "engine/ops/cpu/simd.h"

#if defined(TRIREME_ISA_avx512)
#include <immintrin.h>
#endif

namespace trireme::cpu::TRIREME_ISA {
namespace {

constexpr int kChains = 12;  // independent sums: more than latency times throughput needs

TRIREME_INLINE float total(const Vec<float> (&sums)[kChains]) {
  Vec<float> all = sums[0];
  for (int i = 1; i < kChains; ++i) all += sums[i];
  return sum(all);
}

float float32_rounds(int64_t rounds) {
  Vec<float> sums[kChains] = {};
  Vec<float> factor = splat<Vec<float>>(0.5f), term = splat<Vec<float>>(1.0f);
  // Unknown values: otherwise the compiler could compute the result beforehand.
  asm volatile("" : "+m"(factor), "+m"(term));
  for (int64_t i = 0; i < rounds; ++i)
    for (int c = 0; c < kChains; ++c) sums[c] = sums[c] * factor + term;
  return total(sums);
}

#if defined(TRIREME_ISA_avx512)
[[gnu::target("avx512bf16")]] float bfloat16_rounds(int64_t rounds) {
  __m512 sums[kChains] = {};
  __m512i ones = _mm512_set1_epi16(0x3f80);
  asm volatile("" : "+m"(ones));
  for (int64_t i = 0; i < rounds; ++i)
    for (int c = 0; c < kChains; ++c)
      sums[c] = _mm512_dpbf16_ps(sums[c], reinterpret_cast<__m512bh>(ones),
                                 reinterpret_cast<__m512bh>(ones));
  Vec<float> totals[kChains];
  for (int c = 0; c < kChains; ++c) totals[c] = __builtin_bit_cast(Vec<float>, sums[c]);
  return total(totals);
}
#endif

}  // namespace

template <class T>
void multiply_add_loop(PeakLoop& loop, int threads) {
  float sink = 0;
#pragma omp parallel num_threads(threads) reduction(+ : sink)
  {
#if defined(TRIREME_ISA_avx512)
    if constexpr (std::is_same_v<T, bf16>)
      sink += bfloat16_rounds(loop.rounds);
    else
#endif
      sink += float32_rounds(loop.rounds);
  }
  constexpr bool kDots = std::is_same_v<T, bf16> && kVectorBytes == 64;
  loop.sink = sink;
  loop.operations =
      2.0 * (kDots ? 2 : 1) * kChains * kLanes<float> * static_cast<double>(loop.rounds) * threads;
}

template <class T>
void read_loop(const T* data, int64_t n, T& sink, int threads) {
  T all = 0;
  constexpr int kUnroll = 4;
#pragma omp parallel num_threads(threads) reduction(+ : all)
  {
    const int64_t block = kUnroll * kLanes<float>;
    const int64_t blocks = n / block, count = omp_get_num_threads(), rank = omp_get_thread_num();
    Vec<float> sums[kUnroll] = {};
    for (int64_t i = blocks * rank / count; i < blocks * (rank + 1) / count; ++i)
      for (int u = 0; u < kUnroll; ++u) sums[u] += load(data + i * block + u * kLanes<float>);
    all += sum((sums[0] + sums[1]) + (sums[2] + sums[3]));
  }
  sink += all;
}

template void multiply_add_loop<float>(PeakLoop&, int);
template void multiply_add_loop<bf16>(PeakLoop&, int);
template void read_loop<float>(const float*, int64_t, float&, int);

}  // namespace trireme::cpu::TRIREME_ISA
