#include "engine/ops/cpu/peak.h"

#include <omp.h>

#include <type_traits>

#if defined(TRIREME_ISA_avx512)
#include <immintrin.h>
#endif

namespace trireme::cpu::TRIREME_ISA {
namespace {

#if defined(TRIREME_ISA_avx512)
constexpr int kVectorBytes = 64;
#elif defined(TRIREME_ISA_avx2)
constexpr int kVectorBytes = 32;
#else
constexpr int kVectorBytes = 16;
#endif
constexpr int kLanes = kVectorBytes / static_cast<int>(sizeof(float));
constexpr int kChains = 12;  // independent sums: more than latency times throughput needs

using Vector [[gnu::vector_size(kVectorBytes), gnu::aligned(4), gnu::may_alias]] = float;

float add_lanes(const Vector (&sums)[kChains]) {
  float total = 0;
  for (const Vector& sum : sums)
    for (int i = 0; i < kLanes; ++i) total += sum[i];
  return total;
}

float float32_rounds(int64_t rounds) {
  Vector sums[kChains] = {};
  Vector factor = Vector{} + 0.5f, term = Vector{} + 1.0f;
  // Unknown values: otherwise the compiler could compute the result beforehand.
  asm volatile("" : "+m"(factor), "+m"(term));
  for (int64_t i = 0; i < rounds; ++i)
    for (Vector& sum : sums) sum = sum * factor + term;
  return add_lanes(sums);
}

#if defined(TRIREME_ISA_avx512)
[[gnu::target("avx512bf16")]] float bfloat16_rounds(int64_t rounds) {
  __m512 sums[kChains] = {};
  __m512i ones = _mm512_set1_epi16(0x3f80);
  asm volatile("" : "+m"(ones));
  for (int64_t i = 0; i < rounds; ++i)
    for (__m512& sum : sums)
      sum =
          _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(ones), reinterpret_cast<__m512bh>(ones));
  Vector totals[kChains];
  for (int i = 0; i < kChains; ++i) totals[i] = reinterpret_cast<Vector>(sums[i]);
  return add_lanes(totals);
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
      2.0 * (kDots ? 2 : 1) * kChains * kLanes * static_cast<double>(loop.rounds) * threads;
}

template <class T>
void read_loop(const T* data, int64_t n, T& sink, int threads) {
  T total = 0;
  constexpr int kUnroll = 4;
#pragma omp parallel num_threads(threads) reduction(+ : total)
  {
    const int64_t block = kUnroll * kLanes;
    const int64_t blocks = n / block, count = omp_get_num_threads(), rank = omp_get_thread_num();
    Vector sums[kUnroll] = {};
    for (int64_t i = blocks * rank / count; i < blocks * (rank + 1) / count; ++i)
      for (int u = 0; u < kUnroll; ++u)
        sums[u] += *reinterpret_cast<const Vector*>(data + i * block + u * kLanes);
    for (int i = 0; i < kLanes; ++i) total += sums[0][i] + sums[1][i] + sums[2][i] + sums[3][i];
  }
  sink += total;
}

template void multiply_add_loop<float>(PeakLoop&, int);
template void multiply_add_loop<bf16>(PeakLoop&, int);
template void read_loop<float>(const float*, int64_t, float&, int);

}  // namespace trireme::cpu::TRIREME_ISA
