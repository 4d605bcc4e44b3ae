// Search by one thread block for a token in the order of a row. For CUDA sources only.
//
// Each thread has one bin of the row's histogram. Running sums over the bins determine the token's
// bin; a pass over the row collects the tokens of that bin, which are sorted if they are at most as
// many as the threads, and otherwise divided into finer bins.
#pragma once

#include "engine/ops/sampling/sample_order.cuda.h"

namespace trireme::cuda {

constexpr int kSearchThreads = kWeightBins, kSearchWarps = kSearchThreads / kWarp;
static_assert(kSearchWarps <= kWarp, "a warp has a lane for each warp");

// Number of tokens and the sum of their p.
struct Amount {
  int32_t count;
  double mass;
  __device__ Amount operator+(const Amount& other) const {
    return {count + other.count, mass + other.mass};
  }
};

// Condition on the running amount that the searched token is the first to satisfy.
struct Goal {
  int64_t count = 0;  // reach this count; 0: use the mass
  double mass = 0;
  bool exceeds = false;  // exceed the mass, else reach it

  // Returns whether the token may be among those counted in `own`.
  __device__ bool may_have(const Amount& own) const {
    return count > 0 ? own.count > 0 : own.mass > 0;
  }
  __device__ bool satisfied(const Amount& sum) const {
    if (count > 0) return sum.count >= count;
    return exceeds ? sum.mass > mass : sum.mass >= mass;
  }
};

// Shared memory of the block.
struct SearchShared {
  LogitRow row;
  TokenKeys keys;
  WeightBins bins;
  uint32_t largest;               // logit key
  Amount row_bins[kWeightBins];   // the row's histogram
  WideSums<kWeightBins> weights;  // of the finer bins of a range, set by collect()
  uint32_t counts[kWeightBins];   // the same
  int collected;  // keys collected; above kSearchThreads: the range has more tokens than fit
  uint64_t collected_keys[kSearchThreads];
  Amount of_warp[kSearchWarps];
  Amount before, through;  // running amounts before and through the chosen bin or token
  int codes[kWarp];        // scratch of block_max() and block_sum(), as are the next two
  double sums[kWarp];
  uint64_t integers[kWarp];
};

// Search over the row of `shared`. All threads of the block call each function together, except for
// amount_of().
struct TokenSearch {
  SearchShared* shared;

  // Token keys from low to high (inclusive), all in bin `bin`.
  struct Range {
    uint64_t low, high;
    int bin;
  };
  struct Found {
    uint64_t key;
    double mass;  // sum of p through this token
  };

  // Returns the amount of `count` tokens of a bin whose integer weights sum to `weight`.
  __device__ Amount amount_of(int32_t count, uint64_t weight, int bin) const {
    return {count, shared->bins.scale(bin) * static_cast<double>(weight)};
  }

  // Returns the sum of x over the threads before this one, in an order fixed by the block's size.
  __device__ Amount sum_before(const Amount& x) const {
    const int lane = lane_of_warp(), warp = static_cast<int>(threadIdx.x) / kWarp;
    const auto from_lane = [](const Amount& a, int from) {
      return Amount{__shfl_sync(0xffffffffu, a.count, from),
                    __shfl_sync(0xffffffffu, a.mass, from)};
    };
    const auto running = [&](Amount sum) {
#pragma unroll
      for (int distance = 1; distance < kWarp; distance *= 2) {
        const Amount other = from_lane(sum, lane < distance ? lane : lane - distance);
        if (lane >= distance) sum = other + sum;
      }
      return sum;
    };
    const Amount sum = running(x);
    __syncthreads();  // until an earlier call's values have been read
    if (lane == kWarp - 1) shared->of_warp[warp] = sum;
    __syncthreads();
    const Amount all = running(lane < kSearchWarps ? shared->of_warp[lane] : Amount{});
    const Amount before_warp = from_lane(all, warp == 0 ? 0 : warp - 1);
    const Amount before_lane = from_lane(sum, lane == 0 ? 0 : lane - 1);
    return (warp == 0 ? Amount{} : before_warp) + (lane == 0 ? Amount{} : before_lane);
  }

  // Returns the first thread at which the running amount, starting from `base`, satisfies the goal;
  // if rounding errors leave none, the last thread that may have the token. Sets shared->before and
  // shared->through to the running amounts before and through that thread.
  __device__ int choose(const Amount& amount, const Amount& base, const Goal& goal) const {
    const int t = static_cast<int>(threadIdx.x);
    const Amount before = base + sum_before(amount), through = before + amount;
    int code = -1;
    if (goal.may_have(amount)) code = goal.satisfied(through) ? 2 * kSearchThreads - 1 - t : t;
    code = block_max(code, shared->codes);
    const int index = code < kSearchThreads ? max(code, 0) : 2 * kSearchThreads - 1 - code;
    if (t == index) {
      shared->before = before;
      shared->through = through;
    }
    __syncthreads();
    return index;
  }

  // Returns the range of all token keys of one of the row's bins.
  __device__ Range range_of_bin(int bin) const {
    const TokenKeys& keys = shared->keys;
    const WeightBins& bins = shared->bins;
    const uint32_t largest = shared->largest;
    const uint32_t low =
        lowest_key(largest, [&](uint32_t key) { return bins.bin(logit_of(key)) <= bin; });
    if (bin == 0) return {keys.lowest(low), keys.highest(largest), bin};
    const uint32_t before =
        lowest_key(largest, [&](uint32_t key) { return bins.bin(logit_of(key)) < bin; });
    return {keys.lowest(low), keys.highest(before - 1), bin};
  }

  // Calls visit(key, weight) for each token of the row in the range, on any thread.
  template <class Visit>
  __device__ void visit_range(const Range& range, const Visit& visit) const {
    constexpr int kAhead = 4, kPack = LogitRow::kPack, kStep = kPack * kSearchThreads;
    const LogitRow row = shared->row;
    const TokenKeys keys = shared->keys;
    const float low = logit_of(keys.logit(range.low)), high = logit_of(keys.logit(range.high));
    const auto columns = static_cast<uint32_t>(row.columns);  // below 2^31
    for (uint32_t at = kPack * threadIdx.x; at < columns; at += kAhead * kStep) {
      LogitRow::Pack packs[kAhead];
#pragma unroll
      for (int a = 0; a < kAhead; ++a) packs[a] = row.load(at + a * kStep);
      unsigned inside = 0;
#pragma unroll
      for (int i = 0; i < kAhead * kPack; ++i) {
        const float logit = packs[i / kPack].v[i % kPack];
        inside |= (logit >= low && logit <= high ? 1u : 0u) << i;
      }
      while (inside != 0) {  // few: reading them again costs less than a copy of this code for each
        const int i = __ffs(static_cast<int>(inside)) - 1;
        inside &= inside - 1;
        const uint32_t id = at + static_cast<uint32_t>(i / kPack * kStep + i % kPack);
        if (id >= columns) continue;
        const float logit = row.data[id];
        const uint64_t key = keys.key(logit, id);
        if (key >= range.low && key <= range.high)
          visit(key, shared->bins.weight(logit, range.bin));
      }
    }
  }

  // Collects the tokens of the range: weights and counts in bins of 2^shift keys, the largest keys
  // in bin 0, and up to kSearchThreads keys.
  __device__ void collect(const Range& range, int shift) const {
    const int t = static_cast<int>(threadIdx.x);
    shared->weights.low[t] = shared->weights.high[t] = shared->counts[t] = 0;
    if (t == 0) shared->collected = 0;
    __syncthreads();
    bool full = false;
    visit_range(range, [&](uint64_t key, uint64_t weight) {
      const int bin = static_cast<int>((range.high - key) >> shift);
      shared->weights.add(bin, weight);
      atomicAdd(shared->counts + bin, 1u);
      if (full) return;
      const int at = atomicAdd(&shared->collected, 1);
      full = at >= kSearchThreads;
      if (!full) shared->collected_keys[at] = key;
    });
    __syncthreads();
  }

  // Sorts the n collected keys in descending order, by a bitonic sort.
  __device__ void sort_collected(int n) const {
    const int t = static_cast<int>(threadIdx.x);
    uint64_t* const sorted = shared->collected_keys;
    if (t >= n) sorted[t] = 0;
    __syncthreads();
    for (int run = 2; run < 2 * n; run *= 2)
      for (int distance = run / 2; distance > 0; distance /= 2) {
        const int other = t ^ distance;
        if (other > t && t < 2 * n) {
          const uint64_t a = sorted[t], b = sorted[other];
          if ((a < b) == ((t & run) == 0)) {
            sorted[t] = b;
            sorted[other] = a;
          }
        }
        __syncthreads();
      }
  }

  // Returns the first token at which the running amount satisfies the goal; if rounding errors
  // leave none, the last one of the bin that choose() returns.
  __device__ Found find(const Goal& goal) const {
    constexpr int kBinBits = 9;
    static_assert(1 << kBinBits == kWeightBins);
    const int t = static_cast<int>(threadIdx.x);
    const WeightBins& bins = shared->bins;
    Range range = range_of_bin(choose(shared->row_bins[t], {}, goal));
    for (;;) {
      const int shift =
          max(64 - __clzll(static_cast<long long>(range.high - range.low)) - kBinBits, 0);
      collect(range, shift);
      const int n = shared->collected;
      const bool all = n <= kSearchThreads;
      Amount amount{};
      if (!all) {
        amount =
            amount_of(static_cast<int32_t>(shared->counts[t]), shared->weights.value(t), range.bin);
      } else {
        sort_collected(n);
        const float logit = logit_of(shared->keys.logit(shared->collected_keys[t]));
        if (t < n) amount = amount_of(1, bins.weight(logit, range.bin), range.bin);
      }
      const int index = choose(amount, shared->before, goal);
      if (all) return {shared->collected_keys[index], shared->through.mass};
      range.high -= static_cast<uint64_t>(index) << shift;
      range.low = range.high - min(range.high - range.low, (uint64_t{1} << shift) - 1);
    }
  }

  // Returns the sum of p over all tokens whose keys are at least `key`.
  __device__ double mass_through(uint64_t key) const {
    const WeightBins& bins = shared->bins;
    const int bin = bins.bin(logit_of(shared->keys.logit(key)));
    const Amount before = sum_before(shared->row_bins[threadIdx.x]);
    if (static_cast<int>(threadIdx.x) == bin) shared->before = before;
    __syncthreads();
    const double mass = shared->before.mass;
    Range range = range_of_bin(bin);
    range.low = key;
    uint64_t sum = 0;
    visit_range(range, [&](uint64_t, uint64_t weight) { sum += weight; });
    return mass + amount_of(0, block_sum(sum, shared->integers), bin).mass;
  }

  // Returns the smallest token key that is at least `key`; there must be one.
  __device__ uint64_t last_token(uint64_t key) const {
    constexpr int kPack = LogitRow::kPack;
    const LogitRow row = shared->row;
    uint64_t complement = 0;
    for (int64_t at = kPack * threadIdx.x; at < row.columns; at += kPack * kSearchThreads) {
      const LogitRow::Pack pack = row.load(at);
#pragma unroll
      for (int i = 0; i < kPack; ++i) {
        const uint64_t other = shared->keys.key(pack.v[i], at + i);
        if (at + i < row.columns && other >= key) complement = max(complement, ~other);
      }
    }
    return ~block_max(complement, shared->integers);
  }
};

}  // namespace trireme::cuda
