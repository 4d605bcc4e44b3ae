// Order and weights of a row's tokens in the sampler's kernels. For CUDA sources only.
//
// A logit key is a logit's bits as an integer that is ordered like the value. A token key is a
// logit key with the complement of the token's id as its lower bits: the larger key is first in the
// order, equal logits are ordered by ascending id, and no two tokens share a key.
#pragma once

#include "engine/ops/backend/kernel.cuda.h"
#include "engine/ops/backend/math.cuda.h"

namespace trireme::cuda {

constexpr uint32_t kKeyOfMinusInfinity = 0x007fffffu, kKeyOfInfinity = 0xff800000u;

// Both zeros have one key; NaN of either sign is above infinity.
__device__ inline uint32_t logit_key(float logit) {
  if (logit != logit) return 0xffffffffu;
  const uint32_t bits = logit == 0.0f ? 0u : __float_as_uint(logit);
  return (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
}
__device__ inline float logit_of(uint32_t key) {
  return __uint_as_float((key >> 31) != 0 ? key & 0x7fffffffu : ~key);
}
__device__ inline bool is_finite_key(uint32_t key) {
  return key > kKeyOfMinusInfinity && key < kKeyOfInfinity;
}

// Token keys of a row.
struct TokenKeys {
  int64_t columns;  // V
  int id_bits;      // columns <= 2^id_bits

  __device__ static TokenKeys of(int64_t columns) {
    return {columns, 32 - __clz(static_cast<int>(columns - 1))};
  }
  __device__ uint64_t mask() const { return (uint64_t{1} << id_bits) - 1; }
  __device__ uint64_t key(float logit, int64_t id) const {
    return lowest(logit_key(logit)) | static_cast<uint64_t>(columns - 1 - id);
  }
  // Smallest and largest number that can be a token key of this logit key.
  __device__ uint64_t lowest(uint32_t logit) const { return uint64_t{logit} << id_bits; }
  __device__ uint64_t highest(uint32_t logit) const { return lowest(logit) | mask(); }
  __device__ uint32_t logit(uint64_t key) const { return static_cast<uint32_t>(key >> id_bits); }
  __device__ int64_t id(uint64_t key) const {
    return columns - 1 - static_cast<int64_t>(key & mask());
  }
};

// Returns the smallest logit key, from that of -infinity to `high`, that satisfies `test`; `high`
// if no smaller one does. All larger keys must satisfy it too; `high` is not tested. To be called
// by all lanes of a warp.
template <class Test>
__device__ uint32_t lowest_key(uint32_t high, const Test& test) {
  uint32_t low = kKeyOfMinusInfinity;
  while (low < high) {
    const uint32_t step = (high - low) / kWarp + 1;
    const uint32_t probe = low + static_cast<uint32_t>(lane_of_warp()) * step;
    const unsigned votes = __ballot_sync(0xffffffffu, probe >= high || test(probe));
    const auto first =
        static_cast<uint32_t>(votes == 0 ? kWarp : __ffs(static_cast<int>(votes)) - 1);
    if (first < kWarp && low + first * step < high) high = low + first * step;
    if (first > 0) low += (first - 1) * step + 1;
  }
  return high;
}

constexpr int kWeightBins = 512;

// Bins of equal width in the distance d = (largest - logit) / temperature. The width, at most 1/16,
// spreads the row's logits over all bins; the last bin also has all larger distances. A token's
// weight is p / (p at the bin's start) = exp(start - d) in multiples of 1 / unit: an integer, so
// that sums do not depend on their order, with the resolution of the bin's own probabilities (error
// bound: engine/ops/sampling/sample.h).
struct WeightBins {
  // Largest logit; 1 / temperature; bins per unit of d; width of a bin in d; weight of a token at
  // the start of its bin.
  double largest, inverse, per_unit, width, unit;

  __device__ static WeightBins of(float largest, float smallest, double temperature, int id_bits) {
    constexpr double kWidest = 32, kNarrowest = 0x1p-30, kMaxInverse = 1e300;
    WeightBins bins{static_cast<double>(largest), min(1.0 / temperature, kMaxInverse), 0, 0, 0};
    const double spread = min(max(bins.distance(smallest), kNarrowest), kWidest);
    bins.per_unit = static_cast<double>(kWeightBins) / spread;
    bins.width = spread / static_cast<double>(kWeightBins);
    // The sum over a row must stay below 2^64; float64 resolves no more than 52 bits.
    bins.unit = static_cast<double>(uint64_t{1} << min(63 - id_bits, 52));
    return bins;
  }
  __device__ double distance(float logit) const {
    return (largest - static_cast<double>(logit)) * inverse;
  }
  __device__ double probability(float logit) const { return exponential(-distance(logit)); }
  __device__ int bin(float logit) const {
    return static_cast<int>(min(distance(logit) * per_unit, static_cast<double>(kWeightBins - 1)));
  }
  // Fused explicitly, so that every kernel gets the same bits.
  __device__ uint64_t weight(float logit, int bin) const {
    const double below = __fma_rn(static_cast<double>(bin), width, -distance(logit));
    return static_cast<uint64_t>(__fma_rn(exponential(below), unit, 0.5));
  }
  // p of a weight of 1.
  __device__ double scale(int bin) const {
    return exponential(-(static_cast<double>(bin) * width)) / unit;
  }
};

// 64-bit sums in shared memory, built from 32-bit atomic operations. The caller zeroes them.
template <int kBins>
struct WideSums {
  uint32_t low[kBins], high[kBins];

  __device__ void add(int bin, uint64_t x) {
    const auto l = static_cast<uint32_t>(x);
    auto h = static_cast<uint32_t>(x >> 32);
    if (atomicAdd(low + bin, l) > ~l) ++h;  // a carry
    if (h > 0) atomicAdd(high + bin, h);
  }
  __device__ uint64_t value(int bin) const { return uint64_t{high[bin]} << 32 | low[bin]; }
};

// One row of logits, read four at a time, with one load if the row is aligned.
struct LogitRow {
  static constexpr int kPack = 4;
  using Pack = cuda::Pack<float, kPack>;
  const float* data;
  int64_t columns;
  bool aligned;

  __device__ static LogitRow of(const float* data, int64_t columns) {
    return {data, columns, reinterpret_cast<uintptr_t>(data) % sizeof(Pack) == 0};
  }
  // Returns logits [i, i + 4); -infinity beyond the row's end.
  __device__ Pack load(int64_t i) const {
    if (aligned && i + kPack <= columns) return *reinterpret_cast<const Pack*>(data + i);
    Pack pack;
#pragma unroll
    for (int j = 0; j < kPack; ++j)
      pack.v[j] = i + j < columns ? data[i + j] : logit_of(kKeyOfMinusInfinity);
    return pack;
  }
};

}  // namespace trireme::cuda
