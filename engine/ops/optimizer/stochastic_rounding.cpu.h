// Stochastic rounding to bfloat16, whose expected value is exact: adds 16 random bits below the
// last kept bit and truncates.
#pragma once

#include "engine/ops/backend/philox.cpu.h"
#include "engine/ops/backend/vector_loop.cpu.h"

namespace trireme::cpu::TRIREME_ISA {

// Returns v rounded to bfloat16, as float32. noise: one value in [0, 2^16) per lane. Infinity stays
// (its lower bits are zero, so there is no carry); NaN is made quiet and gets no noise, which could
// carry into its exponent.
TRIREME_INLINE Vec<float> round_stochastically(Vec<float> v, Vec<uint32_t> noise) {
  const auto u = __builtin_bit_cast(Vec<uint32_t>, v);
  const Vec<uint32_t> rounded = v == v ? u + noise : u | 0x00400000u;
  return __builtin_bit_cast(Vec<float>, rounded & 0xffff0000u);  // exact in bf16
}

// Calls body(i, lanes, words) for the vectors of elements [begin, end); i is the vector's first
// element. `words` has one random word for each lane: word element0 + i of the key for element i.
// Without kNoise the words are zero.
template <class F, bool kNoise, class Body>
TRIREME_INLINE void for_noisy_vectors(int64_t begin, int64_t end, const RandomKey& key,
                                      uint64_t element0, Body&& body) {
  if constexpr (kNoise) {
    constexpr int64_t kChunk = 8 * kPhiloxBatch;
    uint32_t storage[kChunk + 2 * kPhiloxBatch];
    for (int64_t at = begin; at < end; at += kChunk) {
      const int64_t count = end - at < kChunk ? end - at : kChunk;
      const uint32_t* words =
          philox_words(key, element0 + static_cast<uint64_t>(at), count, storage);
      for_vectors<F>(count, [&](int64_t i, auto lanes) {
        Vec<uint32_t> random;  // reads past `count` stay inside the storage
        __builtin_memcpy(&random, words + i, sizeof random);
        body(at + i, lanes, random);
      });
    }
  } else {
    for_vectors<F>(end - begin,
                   [&](int64_t i, auto lanes) { body(begin + i, lanes, Vec<uint32_t>{}); });
  }
}

}  // namespace trireme::cpu::TRIREME_ISA
