#include "engine/ops/moe/expert_order.cuda.h"
#include "engine/ops/rows/counting_order.cuda.h"

namespace trireme::cuda {
namespace {

struct ExpertOfPair {
  const int32_t* experts;
  int64_t count;
  __device__ int32_t operator()(int64_t p) const {
    const int32_t e = experts[p];
    return e < count ? e : -1;
  }
};

struct PlaceOfPair {
  int32_t *pairs, *places;
  __device__ void operator()(int64_t p, int64_t place) const {
    places[p] = static_cast<int32_t>(place);
    if (place >= 0) pairs[place] = static_cast<int32_t>(p);
  }
};

// Eight bits of a token's row, with the sign inverted so that negative rows come first.
struct DigitOfRow {
  const int64_t *rows, *tokens;  // tokens: in the order so far; null: unsorted
  int shift;
  __device__ int64_t token(int64_t i) const { return tokens == nullptr ? i : tokens[i]; }
  __device__ int32_t operator()(int64_t i) const {
    const uint64_t row = static_cast<uint64_t>(rows[token(i)]) ^ (uint64_t{1} << 63);
    return static_cast<int32_t>(row >> shift & (kDigitBuckets - 1));
  }
};

struct MoveToken {
  DigitOfRow from;
  int64_t* tokens;
  __device__ void operator()(int64_t i, int64_t place) const { tokens[place] = from.token(i); }
};

// Pair i of the tokens sorted by row.
struct SortedPair {
  DropOverCapacity a;
  __device__ int64_t pair(int64_t i) const { return a.sorted[i / a.k] * a.k + i % a.k; }
  __device__ int32_t operator()(int64_t i) const {
    const int32_t e = a.all_experts[pair(i)];
    return e < a.num_experts ? e : -1;
  }
};

struct DropPair {
  SortedPair from;
  __device__ void operator()(int64_t i, int64_t place) const {
    const DropOverCapacity& a = from.a;
    const int64_t own = from.pair(i) - a.first * a.k;
    if (place < a.capacity || own < 0 || own >= a.own * a.k) return;
    a.experts[own] = -1;
    atomicAdd(reinterpret_cast<unsigned long long*>(a.dropped), 1ull);
  }
};

}  // namespace

void order_by_expert(Context& gpu, const OrderByExpert& a) {
  place_in_order<false>(gpu, "order_by_expert", ExpertOfPair{a.experts, a.order.buckets},
                        PlaceOfPair{a.pairs, a.places}, a.order);
}

void drop_over_capacity(Context& gpu, const DropOverCapacity& a) {
  constexpr const char* kOp = "drop_over_capacity";
  fill_bytes(gpu, gpu.main, a.dropped, 0, sizeof *a.dropped);
  const CountingScratch by_digit{.counts = a.counts,
                                 .totals = a.totals,
                                 .n = a.tokens,
                                 .buckets = kDigitBuckets,
                                 .chunks = order_chunks(a.tokens)};
  DropOverCapacity at = a;
  const int64_t* tokens = nullptr;
  for (int shift = 0; shift < 64; shift += 8) {  // the lowest digit first: each sort is stable
    std::swap(at.sorted, at.other);
    const DigitOfRow digit{a.all_rows, tokens, shift};
    place_in_order<false>(gpu, kOp, digit, MoveToken{digit, at.sorted}, by_digit);
    tokens = at.sorted;
  }
  const CountingScratch by_expert{.counts = a.counts,
                                  .totals = a.totals,
                                  .n = a.tokens * a.k,
                                  .buckets = a.num_experts,
                                  .chunks = order_chunks(a.tokens * a.k)};
  place_in_order<true>(gpu, kOp, SortedPair{at}, DropPair{SortedPair{at}}, by_expert);
}

}  // namespace trireme::cuda
