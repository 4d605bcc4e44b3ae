// Sampling of tokens in three kernels, each of which reads the previous one's scratch.
//
//   part_kernel       first token, smallest logit and sum of exp(l - largest) of each part of a row
//   histogram_kernel  the weights of a row's tokens in bins; nothing if temperature is 0
//   sample_kernel     one block per row searches for the tokens at which filters and sampling end
//
// A greedy row is read once, with one float64 exp per logit. Others are read and weighted once more
// for the histogram, and read once for each of top_k, top_p, min_p and the sampling (again for each
// refinement of a bin with more than 512 tokens), where only the logits of one bin are weighted.
// Float64 sums have a fixed order, and all others are over integers: atomic additions by any number
// of blocks give the same bits.
#include "engine/core/random.h"
#include "engine/ops/sampling/sample.cuda.h"
#include "engine/ops/sampling/sample_search.cuda.h"

namespace trireme::cuda {
namespace {

constexpr int kThreads = 256, kPacks = 2;  // threads per part; packs per thread
static_assert(kThreads * kPacks * LogitRow::kPack == kSamplePart, "a thread reads its logits once");
static_assert(kWeightBins == kSampleBins, "scratch has room for the bins");
constexpr uint64_t kStream = stream_id("sample");

__device__ LogitRow row_of(const SampleArgs& a, int64_t r) {
  return LogitRow::of(a.logits + r * a.stride, a.columns);
}

using Packs = LogitRow::Pack[kPacks];

// Index of the first logit of pack `i` of this thread.
__device__ int64_t pack_begin(int64_t part, int i) {
  return part * kSamplePart + (i * kThreads + static_cast<int64_t>(threadIdx.x)) * LogitRow::kPack;
}
__device__ void load_part(Packs& packs, const LogitRow& row, int64_t part) {
#pragma unroll
  for (int i = 0; i < kPacks; ++i) packs[i] = row.load(pack_begin(part, i));
}
// Calls f(logit, id) for each of the thread's logits.
template <class F>
__device__ void for_each_logit(const Packs& packs, int64_t columns, int64_t part, const F& f) {
#pragma unroll
  for (int i = 0; i < kPacks * LogitRow::kPack; ++i) {
    const int64_t id = pack_begin(part, i / LogitRow::kPack) + i % LogitRow::kPack;
    if (id < columns) f(packs[i / LogitRow::kPack].v[i % LogitRow::kPack], id);
  }
}

// First token and smallest finite logit of a row, by their keys.
struct RowEnds {
  uint64_t first = 0;
  uint32_t smallest = 0xffffffffu;

  __device__ void add(uint64_t key, uint32_t finite) {
    first = max(first, key);
    smallest = min(smallest, finite);
  }
};

struct EndsShared {
  uint64_t first[kWarp];
  uint32_t complement[kWarp];
};

__device__ RowEnds ends_of_block(const RowEnds& ends, EndsShared& shared) {
  return {block_max(ends.first, shared.first), ~block_max(~ends.smallest, shared.complement)};
}

// First token and smallest finite logit over all parts of a row.
__device__ RowEnds ends_of_row(const SampleArgs& a, uint32_t parts, int64_t r, EndsShared& shared) {
  RowEnds ends;
  for (int64_t p = r * parts + threadIdx.x; p < (r + 1) * parts; p += blockDim.x)
    ends.add(static_cast<uint64_t>(a.first[p]), static_cast<uint32_t>(a.smallest[p]));
  return ends_of_block(ends, shared);
}

__global__ void __launch_bounds__(kThreads) part_kernel(SampleArgs a, uint32_t parts) {
  begin_kernel();
  __shared__ EndsShared shared;
  __shared__ double sums[kWarp];
  const int64_t r = blockIdx.x / parts;
  const uint32_t part = blockIdx.x % parts;
  const TokenKeys keys = TokenKeys::of(a.columns);
  Packs packs;
  load_part(packs, row_of(a, r), part);
  RowEnds ends;
  for_each_logit(packs, a.columns, part, [&](float logit, int64_t id) {
    const uint64_t key = keys.key(logit, id);
    ends.add(key, logit - logit == 0 ? keys.logit(key) : 0xffffffffu);
  });
  ends = ends_of_block(ends, shared);
  const uint32_t first = keys.logit(ends.first);
  double sum = 0;
  if (is_finite_key(first)) {
    const double largest = static_cast<double>(logit_of(first));
    for_each_logit(packs, a.columns, part, [&](float logit, int64_t) {
      sum += exponential(static_cast<double>(logit) - largest);
    });
  }
  sum = block_sum(sum, sums);
  if (threadIdx.x == 0) {
    a.first[blockIdx.x] = static_cast<int64_t>(ends.first);
    a.smallest[blockIdx.x] = static_cast<int32_t>(ends.smallest);
    a.sum[blockIdx.x] = sum;
  }
  // Clears this part's share of the row's bins, for the next kernel.
  constexpr uint32_t kBins = kSampleBins;
  for (uint32_t b = kBins * part / parts + threadIdx.x; b < kBins * (part + 1) / parts;
       b += kThreads)
    a.weights[r * kBins + b] = a.counts[r * kBins + b] = 0;
}

__device__ bool counts_tokens(const SampleArgs& a, int64_t r) {
  return a.top_k[r] > 0 && a.top_k[r] < a.columns;
}

__device__ void add_to(int64_t* sum, uint64_t x) {
  if (x > 0)
    atomicAdd(reinterpret_cast<unsigned long long*>(sum), static_cast<unsigned long long>(x));
}

__global__ void __launch_bounds__(kThreads) histogram_kernel(SampleArgs a, uint32_t parts) {
  begin_kernel();
  __shared__ EndsShared shared;
  __shared__ WideSums<kSampleBins> weights;
  __shared__ uint32_t counts[kSampleBins];
  const int64_t r = blockIdx.x / parts;
  const uint32_t part = blockIdx.x % parts;
  if (!(a.temperature[r] > 0)) return;
  Packs packs;
  load_part(packs, row_of(a, r), part);
  for (int b = static_cast<int>(threadIdx.x); b < kSampleBins; b += kThreads)
    weights.low[b] = weights.high[b] = counts[b] = 0;
  const RowEnds ends = ends_of_row(a, parts, r, shared);
  const TokenKeys keys = TokenKeys::of(a.columns);
  const uint32_t first = keys.logit(ends.first);
  if (!is_finite_key(first)) return;
  const WeightBins bins =
      WeightBins::of(logit_of(first), logit_of(ends.smallest), a.temperature[r], keys.id_bits);
  const bool counted = counts_tokens(a, r);
  for_each_logit(packs, a.columns, part, [&](float logit, int64_t) {
    const int bin = bins.bin(logit);
    if (const uint64_t weight = bins.weight(logit, bin); weight > 0) weights.add(bin, weight);
    if (counted) atomicAdd(counts + bin, 1u);
  });
  __syncthreads();
  for (int b = static_cast<int>(threadIdx.x); b < kSampleBins; b += kThreads) {
    add_to(a.weights + r * kSampleBins + b, weights.value(b));
    if (counted) add_to(a.counts + r * kSampleBins + b, counts[b]);
  }
}

// ln of the sum of exp(l) of a row, from its parts in order.
__device__ double log_sum_exp(const SampleArgs& a, uint32_t parts, int64_t r, float largest,
                              double* shared) {
  const TokenKeys keys = TokenKeys::of(a.columns);
  double sum = 0;
  for (int64_t p = r * parts + threadIdx.x; p < (r + 1) * parts; p += kSearchThreads) {
    const float of_part = logit_of(keys.logit(static_cast<uint64_t>(a.first[p])));
    sum += a.sum[p] * exponential(static_cast<double>(of_part) - static_cast<double>(largest));
  }
  return static_cast<double>(largest) + log(block_sum(sum, shared));
}

__device__ double uniform(uint64_t seed, int64_t position) {
  const PhiloxBlock block = philox({seed, kStream}, static_cast<uint64_t>(position));
  const uint64_t bits = (static_cast<uint64_t>(block[0]) << 32 | block[1]) >> 11;
  return static_cast<double>(bits) * 0x1p-53;
}

// Key of the sampled token.
__device__ uint64_t draw(SearchShared& shared, const SampleArgs& a, int64_t r) {
  const TokenSearch search{&shared};
  // Last kept token, and the sum of p through it.
  TokenSearch::Found kept{0, block_sum(shared.row_bins[threadIdx.x].mass, shared.sums)};
  if (counts_tokens(a, r)) kept = search.find({.count = a.top_k[r]});
  if (a.top_p[r] < 1.0) {
    const TokenSearch::Found found = search.find({.mass = a.top_p[r] * kept.mass});
    if (found.key > kept.key) kept = found;
  }
  if (const double least = a.min_p[r]; least > 0.0) {
    const uint64_t last = shared.keys.lowest(lowest_key(shared.largest, [&](uint32_t key) {
      return shared.bins.probability(logit_of(key)) >= least;
    }));
    if (last > kept.key) kept = {search.last_token(last), search.mass_through(last)};
  }
  const double target = uniform(static_cast<uint64_t>(a.seed[r]), a.position[r]) * kept.mass;
  return max(search.find({.mass = target, .exceeds = true}).key, kept.key);
}

__global__ void __launch_bounds__(kSearchThreads, 1) sample_kernel(SampleArgs a, uint32_t parts) {
  begin_kernel();
  __shared__ EndsShared ends_shared;
  __shared__ SearchShared shared;
  const int64_t r = blockIdx.x;
  const RowEnds ends = ends_of_row(a, parts, r, ends_shared);
  const TokenKeys keys = TokenKeys::of(a.columns);
  const uint32_t largest = keys.logit(ends.first);
  if (!is_finite_key(largest)) {
    if (threadIdx.x == 0) {
      a.id[r] = -1;
      a.logprob[r] = __longlong_as_double(0x7ff8000000000000ll);
    }
    return;
  }
  uint64_t token = ends.first;
  if (a.temperature[r] > 0) {
    if (threadIdx.x == 0) {
      shared.row = row_of(a, r);
      shared.keys = keys;
      shared.bins = WeightBins::of(logit_of(largest), logit_of(ends.smallest), a.temperature[r],
                                   keys.id_bits);
      shared.largest = largest;
    }
    __syncthreads();
    const int t = static_cast<int>(threadIdx.x);
    const int64_t bin = r * kSampleBins + t;
    shared.row_bins[t] = TokenSearch{&shared}.amount_of(static_cast<int32_t>(a.counts[bin]),
                                                        static_cast<uint64_t>(a.weights[bin]), t);
    token = draw(shared, a, r);
  }
  const double normalizer = log_sum_exp(a, parts, r, logit_of(largest), shared.sums);
  if (threadIdx.x != 0) return;
  a.id[r] = static_cast<int32_t>(keys.id(token));
  a.logprob[r] = static_cast<double>(logit_of(keys.logit(token))) - normalizer;
}

}  // namespace

void sample_rows(Context& gpu, const SampleArgs& args) {
  constexpr const char* kOp = "sample_rows";
  const auto parts = static_cast<uint32_t>(sample_parts(args.columns));
  const Grid grid{.blocks = {args.rows * parts}, .threads = kThreads};
  launch(gpu, kOp, part_kernel, grid, args, parts);
  launch(gpu, kOp, histogram_kernel, grid, args, parts);
  launch(gpu, kOp, sample_kernel, {.blocks = {args.rows}, .threads = kSearchThreads}, args, parts);
}

}  // namespace trireme::cuda
