// A row is not sorted: its tokens have places in the order (key descending, id ascending), where a
// key is a logit whose bits are ordered as its value is, and a place is found digit by digit of the
// key, from sums of what every digit's tokens weigh. Everything that is kept is the beginning of
// that order.
#include "engine/core/random.h"
#include "engine/ops/cuda/kernel.h"
#include "engine/ops/cuda/math.h"
#include "engine/ops/cuda/sample.h"

namespace trireme::cuda {
namespace {

constexpr int kThreads = 512, kWarps = kThreads / kWarp;
constexpr int kDigitBits = 4, kDigits = 1 << kDigitBits;
constexpr uint64_t kStream = stream_id("sample");

// Both zeros are the same value.
__device__ uint32_t key_of(float logit) {
  const uint32_t bits = logit == 0.0f ? 0u : __float_as_uint(logit);
  return (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
}
__device__ float logit_of(uint32_t key) {
  return __uint_as_float((key >> 31) != 0 ? key & 0x7fffffffu : ~key);
}

// The beginning of the order: all tokens with larger keys and the first `ties` with this one.
struct Beginning {
  uint32_t key = 0;
  int64_t ties = 0;
  __device__ bool shorter(const Beginning& other) const {
    return key > other.key || (key == other.key && ties < other.ties);
  }
};

struct Shared {
  double of_warp[kWarps][kDigits];
  double digit[kDigits];
  double sum[kWarp];
  uint32_t largest[kWarp];
  int found[kWarps];
  int64_t id;
};

struct Row {
  const float* logits;
  int64_t columns;
  double largest, temperature;
  Shared* shared;

  // p of a token
  __device__ double weight(uint32_t key) const {
    return exponential((static_cast<double>(logit_of(key)) - largest) / temperature);
  }

  template <class Term>
  __device__ double sum(const Term& term) const {
    double total = 0;
    for (int64_t i = threadIdx.x; i < columns; i += kThreads) total += term(key_of(logits[i]));
    return block_sum(total, shared->sum);
  }

  __device__ int64_t count(uint32_t key) const {
    return static_cast<int64_t>(sum([key](uint32_t k) { return k == key ? 1.0 : 0.0; }));
  }

  // shared->digit[d]: the weight of tokens whose key begins with `prefix`, followed by digit d.
  template <class Weight>
  __device__ void weigh_digits(const Weight& of, uint32_t prefix, int shift) const {
    double sums[kDigits] = {};
    for (int64_t i = threadIdx.x; i < columns; i += kThreads) {
      const uint32_t key = key_of(logits[i]), begin = key >> shift;
      // A shift by 32 is none.
      if (shift + kDigitBits < 32 && begin >> kDigitBits != prefix) continue;
      const int digit = static_cast<int>(begin & (kDigits - 1));
      const double w = of(key);
#pragma unroll
      for (int d = 0; d < kDigits; ++d) sums[d] += d == digit ? w : 0.0;
    }
    const int lane = static_cast<int>(threadIdx.x) % kWarp,
              warp = static_cast<int>(threadIdx.x) / kWarp;
#pragma unroll
    for (int d = 0; d < kDigits; ++d) {
      const double total = warp_sum(sums[d]);
      if (lane == d) shared->of_warp[warp][d] = total;
    }
    __syncthreads();
    if (threadIdx.x < kDigits) {
      double total = 0;
      for (int w = 0; w < kWarps; ++w) total += shared->of_warp[w][threadIdx.x];
      shared->digit[threadIdx.x] = total;
    }
    __syncthreads();
  }

  // The shortest beginning whose weight satisfies `reached`; that of `all` where none does.
  template <class Weight, class Reached>
  __device__ Beginning find(const Weight& of, const Reached& reached, const Beginning& all) const {
    uint32_t prefix = 0;
    double above = 0;
    for (int shift = 32 - kDigitBits; shift >= 0; shift -= kDigitBits) {
      weigh_digits(of, prefix, shift);
      int chosen = -1;
      double before = above;  // of the chosen digit
      for (int d = kDigits - 1; d >= 0; --d) {
        const double here = shared->digit[d];
        if (here > 0) {  // the last one, if rounding lets none reach
          chosen = d;
          before = above;
        }
        if (here > 0 && reached(above + here)) break;
        above += here;
        if (d == 0 && shift == 32 - kDigitBits) return all;
      }
      above = before;
      prefix = prefix << kDigitBits | static_cast<uint32_t>(chosen);
    }
    const int64_t most = count(prefix);
    const double w = of(prefix);
    int64_t ties = most;
    if (w > 0) {
      // A guess by division would be as good as its rounding: bisection is exact.
      int64_t low = 1;
      while (low < ties) {
        const int64_t middle = low + (ties - low) / 2;
        if (reached(above + static_cast<double>(middle) * w))
          ties = middle;
        else
          low = middle + 1;
      }
    }
    return {prefix, ties};
  }

  // The sum of p over a beginning.
  __device__ double mass(const Beginning& b) const {
    return sum([&](uint32_t key) { return key > b.key ? weight(key) : 0.0; }) +
           static_cast<double>(b.ties) * weight(b.key);
  }

  // The id of the last token of a beginning.
  __device__ int64_t last_id(const Beginning& b) const {
    const int lane = static_cast<int>(threadIdx.x) % kWarp,
              warp = static_cast<int>(threadIdx.x) / kWarp;
    int64_t before = 0;
    for (int64_t at = 0; at < columns && before < b.ties; at += kThreads) {
      const int64_t i = at + threadIdx.x;
      const bool same = i < columns && key_of(logits[i]) == b.key;
      const unsigned votes = __ballot_sync(0xffffffffu, same);
      if (lane == 0) shared->found[warp] = __popc(votes);
      __syncthreads();
      int64_t place = before + __popc(votes & ((1u << lane) - 1)) + 1;
      for (int w = 0; w < kWarps; ++w) {
        if (w < warp) place += shared->found[w];
        before += shared->found[w];
      }
      if (same && place == b.ties) shared->id = i;
      __syncthreads();
    }
    return shared->id;
  }
};

__device__ double uniform(uint64_t seed, int64_t position) {
  const PhiloxBlock block = philox({seed, kStream}, static_cast<uint64_t>(position));
  const uint64_t bits = (static_cast<uint64_t>(block[0]) << 32 | block[1]) >> 11;
  return static_cast<double>(bits) * 0x1p-53;
}

// What top_k, top_p and min_p leave of a row.
__device__ Beginning keep(const Row& row, const SampleArgs& a, int64_t r, const Beginning& all) {
  Beginning kept = all;
  const auto weight = [&row](uint32_t key) { return row.weight(key); };
  if (a.top_k[r] > 0 && a.top_k[r] < row.columns) {
    const double most = static_cast<double>(a.top_k[r]);
    kept = row.find([](uint32_t) { return 1.0; }, [most](double n) { return n >= most; }, all);
  }
  if (a.top_p[r] < 1.0) {
    const double reach = a.top_p[r] * row.mass(kept);
    const Beginning b = row.find(
        weight, [reach](double m) { return m >= reach; }, kept);
    if (b.shorter(kept)) kept = b;
  }
  if (const double least = a.min_p[r]; least > 0.0) {
    uint32_t smallest = 0;  // its complement, of the keys that are heavy enough
    for (int64_t i = threadIdx.x; i < row.columns; i += kThreads) {
      const uint32_t key = key_of(row.logits[i]);
      if (row.weight(key) >= least && ~key > smallest) smallest = ~key;
    }
    const uint32_t key = ~block_max(smallest, row.shared->largest);
    const Beginning b{key, row.count(key)};
    if (b.shorter(kept)) kept = b;
  }
  return kept;
}

__global__ void __launch_bounds__(kThreads) sample_kernel(SampleArgs a) {
  begin_kernel();
  __shared__ Shared shared;
  const int64_t r = blockIdx.x;
  Row row{a.logits + r * a.stride, a.columns, 0, a.temperature[r], &shared};
  uint32_t first = 0, complement = 0;
  for (int64_t i = threadIdx.x; i < a.columns; i += kThreads) {
    const uint32_t key = key_of(row.logits[i]);
    if (key > first) first = key;
    if (~key > complement) complement = ~key;
  }
  first = block_max(first, shared.largest);
  const uint32_t last = ~block_max(complement, shared.largest);
  row.largest = static_cast<double>(logit_of(first));
  const double scaled = row.sum([&row](uint32_t key) {
    return exponential(static_cast<double>(logit_of(key)) - row.largest);
  });
  const double normaliser = row.largest + log(scaled);
  if (!(normaliser - normaliser == 0)) {
    if (threadIdx.x == 0) {
      a.id[r] = -1;
      a.logprob[r] = __longlong_as_double(0x7ff8000000000000ll);
    }
    return;
  }
  Beginning taken{first, 1};
  if (row.temperature > 0) {
    const Beginning kept = keep(row, a, r, {last, row.count(last)});
    const double target = uniform(static_cast<uint64_t>(a.seed[r]), a.position[r]) * row.mass(kept);
    taken = row.find([&row](uint32_t key) { return row.weight(key); },
                     [target](double m) { return m > target; }, kept);
    if (kept.shorter(taken)) taken = kept;
  }
  const int64_t id = row.last_id(taken);
  if (threadIdx.x != 0) return;
  a.id[r] = static_cast<int32_t>(id);
  a.logprob[r] = static_cast<double>(logit_of(taken.key)) - normaliser;
}

}  // namespace

void sample_rows(Context& gpu, const SampleArgs& args) {
  launch(gpu, "sample_rows", sample_kernel, {.blocks = {args.rows}, .threads = kThreads}, args);
}

}  // namespace trireme::cuda
