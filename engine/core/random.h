// Counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as
// 1, 2, 3", SC 2011). A value depends only on (seed, stream, index): not on thread, rank or order.
// `stream` names the logical parameter or activation (stream_id), `index` its global element.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <string_view>

#include "engine/core/host_device.h"

namespace trireme {

struct RandomKey {
  uint64_t seed = 0;
  uint64_t stream = 0;
};

using PhiloxBlock = std::array<uint32_t, 4>;

// Four independent 32-bit words for block number `block` of the key's stream.
TRIREME_HOST_DEVICE [[gnu::always_inline]] inline PhiloxBlock philox(const RandomKey& key,
                                                                     uint64_t block) {
  constexpr uint32_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;
  constexpr uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
  uint32_t c0 = static_cast<uint32_t>(block), c1 = static_cast<uint32_t>(block >> 32);
  uint32_t c2 = static_cast<uint32_t>(key.stream), c3 = static_cast<uint32_t>(key.stream >> 32);
  uint32_t k0 = static_cast<uint32_t>(key.seed), k1 = static_cast<uint32_t>(key.seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = static_cast<uint64_t>(kMultiplier0) * c0;
    const uint64_t p1 = static_cast<uint64_t>(kMultiplier1) * c2;
    const uint32_t n0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0;
    const uint32_t n2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c1 = static_cast<uint32_t>(p1);
    c3 = static_cast<uint32_t>(p0);
    c0 = n0;
    c2 = n2;
    k0 += kWeyl0;
    k1 += kWeyl1;
  }
  return {c0, c1, c2, c3};
}

// Word `index` of the key's stream: block index / 4.
TRIREME_HOST_DEVICE [[gnu::always_inline]] inline uint32_t philox_word(const RandomKey& key,
                                                                       uint64_t index) {
  return philox(key, index / 4)[index % 4];
}

// Uniform in [0, 1) with 24 random bits.
TRIREME_HOST_DEVICE [[gnu::always_inline]] inline float uniform_from_word(uint32_t word) {
  return static_cast<float>(word >> 8) * 0x1p-24f;
}

// 64-bit FNV-1a hash of a name such as "model.layers.3.mlp.up_proj.weight".
constexpr uint64_t stream_id(std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (char c : name) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
  return hash;
}

// Derives a stream for a number, such as a training step or micro-batch.
TRIREME_HOST_DEVICE constexpr uint64_t substream(uint64_t stream, uint64_t number) {
  uint64_t z = stream + 0x9E3779B97F4A7C15u * (number + 1);  // splitmix64 finalizer
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

}  // namespace trireme
