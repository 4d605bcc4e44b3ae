#include "engine/ops/gemm/peak.cpu.h"

#include <omp.h>

#include "engine/ops/backend/simd.cpu.h"
#include "engine/ops/gemm/amx_config.cpu.h"

#if defined(TRIREME_ISA_avx512)
#include <immintrin.h>
#endif

namespace trireme::cpu::TRIREME_ISA {
namespace {

constexpr int kChains = 12;  // independent sums: more than latency times throughput

TRIREME_INLINE float total(const Vec<float> (&sums)[kChains]) {
  Vec<float> all = sums[0];
  for (int i = 1; i < kChains; ++i) all += sums[i];
  return sum(all);
}

float float32_rounds(int64_t rounds) {
  Vec<float> sums[kChains] = {};
  Vec<float> factor = splat<Vec<float>>(0.5f), term = splat<Vec<float>>(1.0f);
  // Opaque values: otherwise the compiler could compute the result at compile time.
  asm volatile("" : "+m"(factor), "+m"(term));
  for (int64_t i = 0; i < rounds; ++i)
    for (int c = 0; c < kChains; ++c) sums[c] = multiply_add(sums[c], factor, term);
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

namespace {

// Sums blocks [begin, end) of kUnroll vectors, `Streams` of them at equal distances at a time.
template <int Streams>
float sum_streams(const float* data, int64_t begin, int64_t end) {
  constexpr int kUnroll = 4;
  constexpr int64_t kBlock = kUnroll * kLanes<float>;
  const int64_t each = (end - begin) / Streams;
  Vec<float> sums[kUnroll] = {};
  for (int64_t i = begin; i < begin + each; ++i)
    for (int s = 0; s < Streams; ++s)
      for (int u = 0; u < kUnroll; ++u)
        sums[u] += load(data + (i + s * each) * kBlock + u * kLanes<float>);
  for (int64_t i = begin + Streams * each; i < end; ++i)
    for (int u = 0; u < kUnroll; ++u) sums[u] += load(data + i * kBlock + u * kLanes<float>);
  return sum((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

// Halves blocks [begin, end), `Streams` of them at equal distances at a time.
template <int Streams>
void halve_streams(float* data, int64_t begin, int64_t end) {
  constexpr int kUnroll = 4;
  constexpr int64_t kBlock = kUnroll * kLanes<float>;
  const Vec<float> half = splat<Vec<float>>(0.5f);
  const auto halve = [&](float* block) {
    for (int u = 0; u < kUnroll; ++u)
      store(block + u * kLanes<float>, load(block + u * kLanes<float>) * half);
  };
  const int64_t each = (end - begin) / Streams;
  for (int64_t i = begin; i < begin + each; ++i)
    for (int s = 0; s < Streams; ++s) halve(data + (i + s * each) * kBlock);
  for (int64_t i = begin + Streams * each; i < end; ++i) halve(data + i * kBlock);
}

}  // namespace

template <class T>
void halve_loop(T* data, int64_t n, int streams, int threads) {
  constexpr int64_t kBlock = 4 * kLanes<float>;
  const int64_t blocks = n / kBlock;
#pragma omp parallel num_threads(threads)
  {
    const int64_t count = omp_get_num_threads(), rank = omp_get_thread_num();
    const int64_t begin = blocks * rank / count, end = blocks * (rank + 1) / count;
    if (streams == 1)
      halve_streams<1>(data, begin, end);
    else
      halve_streams<4>(data, begin, end);
  }
  for (int64_t i = blocks * kBlock; i < n; ++i) data[i] *= 0.5f;
}

template <class T>
void read_loop(const T* data, int64_t n, int streams, T& sink, int threads) {
  T all = 0;
  constexpr int64_t kBlock = 4 * kLanes<float>;
  const int64_t blocks = n / kBlock;
#pragma omp parallel num_threads(threads) reduction(+ : all)
  {
    const int64_t count = omp_get_num_threads(), rank = omp_get_thread_num();
    const int64_t begin = blocks * rank / count, end = blocks * (rank + 1) / count;
    all += streams == 1   ? sum_streams<1>(data, begin, end)
           : streams == 4 ? sum_streams<4>(data, begin, end)
                          : sum_streams<8>(data, begin, end);
  }
  for (int64_t i = blocks * kBlock; i < n; ++i) all += data[i];
  sink += all;
}

#if defined(TRIREME_ISA_avx512)
namespace {

constexpr int kTileRows = 16, kTileBytes = 64;  // of each of the eight tiles

[[gnu::target("amx-tile,amx-bf16")]] float tile_rounds(int64_t rounds) {
  const AmxConfig config;
  alignas(64) uint16_t ones[kTileRows * kTileBytes / 2];
  for (uint16_t& one : ones) one = 0x3f80;
  // GCC's intrinsics do not declare that they read this memory.
  asm volatile("" : : "r"(&config), "r"(ones) : "memory");
  _tile_loadconfig(&config);
  alignas(64) float sums[kTileRows * kTileBytes / 4];
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_loadd(4, ones, kTileBytes);
  _tile_loadd(5, ones, kTileBytes);
  _tile_loadd(6, ones, kTileBytes);
  _tile_loadd(7, ones, kTileBytes);
  for (int64_t i = 0; i < rounds; ++i) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, sums, kTileBytes);
  float all = sums[0];
  _tile_stored(3, sums, kTileBytes);
  all += sums[1];
  _tile_release();
  return all;
}

}  // namespace

void tile_product_loop(PeakLoop& loop, int threads) {
  constexpr double kTileOperations = 2.0 * kTileRows * (kTileBytes / 4) * (kTileBytes / 2);
  float sink = 0;
#pragma omp parallel num_threads(threads) reduction(+ : sink)
  sink += tile_rounds(loop.rounds);
  loop.sink = sink;
  loop.operations = 4 * kTileOperations * static_cast<double>(loop.rounds) * threads;
}
#endif

template void multiply_add_loop<float>(PeakLoop&, int);
template void multiply_add_loop<bf16>(PeakLoop&, int);
template void read_loop<float>(const float*, int64_t, int, float&, int);
template void halve_loop<float>(float*, int64_t, int, int);

}  // namespace trireme::cpu::TRIREME_ISA
