// Philox words in bulk: equal to philox_word() of engine/core/random.h for consecutive indices,
// many blocks at a time. A 64-bit lane contains one 32-bit word of the state of one block; the
// multiplications leave garbage in its upper half, which is never read.
#pragma once

#if defined(TRIREME_ISA_avx512) || defined(TRIREME_ISA_avx2)
#include <immintrin.h>
#endif

#include <cstring>

#include "engine/core/random.h"

namespace trireme::cpu::TRIREME_ISA {

#if defined(TRIREME_ISA_avx512)
inline constexpr int kPhiloxLanes = 8;
#elif defined(TRIREME_ISA_avx2)
inline constexpr int kPhiloxLanes = 4;
#else
inline constexpr int kPhiloxLanes = 2;
#endif
using PhiloxLanes [[gnu::vector_size(8 * kPhiloxLanes)]] = uint64_t;

inline constexpr int kPhiloxBatchBlocks = 16;
inline constexpr int kPhiloxBatch = 4 * kPhiloxBatchBlocks;  // words of one call

// Products of the lower halves of the lanes.
[[gnu::always_inline]] inline PhiloxLanes multiply_low_halves(PhiloxLanes a, PhiloxLanes b) {
#if defined(TRIREME_ISA_avx512)
  // The unmasked form makes GCC 12 warn about an undefined operand.
  return (PhiloxLanes)_mm512_maskz_mul_epu32(0xff, (__m512i)a, (__m512i)b);
#elif defined(TRIREME_ISA_avx2)
  return (PhiloxLanes)_mm256_mul_epu32((__m256i)a, (__m256i)b);
#else
  return (a & 0xffffffffu) * (b & 0xffffffffu);
#endif
}

// words[4 i + j] = word j of block first_block + i, for i < kPhiloxBatchBlocks.
[[gnu::always_inline]] inline void philox_batch(const RandomKey& key, uint64_t first_block,
                                                uint32_t* words) {
  constexpr int kGroups = kPhiloxBatchBlocks / kPhiloxLanes;
  constexpr uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
  const PhiloxLanes multiplier0 = PhiloxLanes{} + 0xD2511F53u;
  const PhiloxLanes multiplier1 = PhiloxLanes{} + 0xCD9E8D57u;
  PhiloxLanes lane{};
  for (int l = 0; l < kPhiloxLanes; ++l) lane[l] = static_cast<uint64_t>(l);
  PhiloxLanes c0[kGroups], c1[kGroups], c2[kGroups], c3[kGroups];
  for (int g = 0; g < kGroups; ++g) {
    c0[g] = lane + (first_block + static_cast<uint64_t>(g * kPhiloxLanes));
    c1[g] = c0[g] >> 32;
    c2[g] = PhiloxLanes{} + key.stream;
    c3[g] = c2[g] >> 32;
  }
  uint32_t k0 = static_cast<uint32_t>(key.seed), k1 = static_cast<uint32_t>(key.seed >> 32);
  for (int round = 0; round < 10; ++round) {
    for (int g = 0; g < kGroups; ++g) {
      const PhiloxLanes p0 = multiply_low_halves(c0[g], multiplier0);
      const PhiloxLanes p1 = multiply_low_halves(c2[g], multiplier1);
      c0[g] = (p1 >> 32) ^ c1[g] ^ uint64_t { k0 };
      c2[g] = (p0 >> 32) ^ c3[g] ^ uint64_t { k1 };
      c1[g] = p1;
      c3[g] = p0;
    }
    k0 += kWeyl0;
    k1 += kWeyl1;
  }
  for (int g = 0; g < kGroups; ++g) {
    uint64_t pairs[2 * kPhiloxLanes];
    const PhiloxLanes low = (c0[g] & 0xffffffffu) | (c1[g] << 32);
    const PhiloxLanes high = (c2[g] & 0xffffffffu) | (c3[g] << 32);
    for (int l = 0; l < kPhiloxLanes; ++l) {
      pairs[2 * l] = low[l];
      pairs[2 * l + 1] = high[l];
    }
    std::memcpy(words + g * 4 * kPhiloxLanes, pairs, sizeof pairs);
  }
}

// Writes words of the key's stream to `words`, which has room for count + 2 * kPhiloxBatch, and
// returns p in it such that p[i] = word number first + i, for i < count.
[[gnu::always_inline]] inline const uint32_t* philox_words(const RandomKey& key, uint64_t first,
                                                           int64_t count, uint32_t* words) {
  const uint64_t skipped = first % 4;
  const int64_t end = count + static_cast<int64_t>(skipped);
  for (int64_t i = 0; i < end; i += kPhiloxBatch)
    philox_batch(key, first / 4 + static_cast<uint64_t>(i / 4), words + i);
  return words + skipped;
}

}  // namespace trireme::cpu::TRIREME_ISA
