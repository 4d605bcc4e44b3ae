// One row's choice in time proportional to V. Sorting all of a vocabulary took most of it; the
// filters and the draw need the order around two places only: where the kept end, and where the
// running sum passes u. So the tokens are dealt into buckets of like probability, whose sums say in
// which buckets these places are, and only those are sorted.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "engine/ops/sample.h"

namespace trireme {
namespace {

constexpr size_t kBuckets = SampleScratch::kBuckets;
constexpr double kBucketsPerUnit =
    32;  // of (max l - l) / temperature; the last bucket has all from 31.97 on
// exp(-50) of every token of any vocabulary are less than a rounding of the sum, which is at least
// 1.
constexpr double kNegligible = 50;

double exponential(double distance) { return distance > kNegligible ? 0 : std::exp(-distance); }

double sum_of_exponentials(std::span<const float> logits, double largest) {
  double sum = 0;
  for (const float l : logits) sum += exponential(largest - static_cast<double>(l));
  return sum;
}

// Whether a is before b.
struct Before {
  std::span<const float> logits;
  bool operator()(int32_t a, int32_t b) const {
    const float la = logits[static_cast<size_t>(a)], lb = logits[static_cast<size_t>(b)];
    return la != lb ? la > lb : a < b;
  }
};

struct Row {
  const SamplingParams& params;
  std::span<const float> logits;
  double largest;
  double u;
  double distance(int32_t id) const {
    return (largest - static_cast<double>(logits[static_cast<size_t>(id)])) / params.temperature;
  }
  double probability(int32_t id) const { return exponential(distance(id)); }
};

// Of tokens in their order with a sum of p: the one at which the running sum exceeds `target`.
int32_t draw(const Row& row, std::span<const int32_t> order, double target) {
  int32_t last = order[0];
  for (const int32_t id : order) {
    const double p = row.probability(id);
    if (target < p) return id;
    target -= p;
    if (p > 0) last = id;
  }
  return last;  // roundings
}

// Leaves of the kept, in their order and with this sum of p, those that typical_p keeps; returns
// their sum.
double keep_typical(const Row& row, std::vector<int32_t>& kept, double sum) {
  // With q = p / sum a token's surprise is -ln q = distance + ln sum, and their mean H the same of
  // distances.
  double mean = 0;
  for (const int32_t id : kept)
    if (const double p = row.probability(id); p > 0) mean += p / sum * row.distance(id);
  const auto unusual = [&](int32_t id) { return std::abs(row.distance(id) - mean); };
  const Before before{row.logits};
  std::ranges::sort(kept, [&](int32_t a, int32_t b) {
    const double ua = unusual(a), ub = unusual(b);
    return ua != ub ? ua < ub : before(a, b);
  });
  size_t count = 0;
  double left = 0;
  while (count < kept.size() && (count == 0 || left < row.params.typical_p * sum))
    left += row.probability(kept[count++]);
  kept.resize(count);
  std::ranges::sort(kept, before);
  return left;
}

int32_t draw_of_kept(const Row& row, std::vector<int32_t>& kept, double sum) {
  if (row.params.typical_p < 1) sum = keep_typical(row, kept, sum);
  return draw(row, kept, row.u * sum);
}

// Of the first top_k.
int32_t choose_of_first(const Row& row, SampleScratch& scratch) {
  std::vector<int32_t>& order = scratch.order;
  first_of_row(row.logits, row.params.top_k, order);
  double total = 0, sum = 0;
  for (const int32_t id : order) total += row.probability(id);
  const double reach = row.params.top_p * total;
  size_t count = 0;
  while (count < order.size()) {
    const double p = row.probability(order[count]);
    if (count > 0 && (sum >= reach || p < row.params.min_p)) break;
    sum += p;
    ++count;
  }
  order.resize(count);
  return draw_of_kept(row, order, sum);
}

// --- all tokens, in buckets
// -----------------------------------------------------------------------------------

size_t bucket_of(double distance) {
  const double at = distance * kBucketsPerUnit;
  return at < static_cast<double>(kBuckets) ? static_cast<size_t>(at) : kBuckets - 1;
}

void deal(const Row& row, SampleScratch& scratch) {
  scratch.sums.assign(kBuckets, 0.0);
  scratch.bucket.resize(row.logits.size());
  for (size_t i = 0; i < row.logits.size(); ++i) {
    const double distance = row.distance(static_cast<int32_t>(i));
    const size_t b = bucket_of(distance);
    scratch.bucket[i] = static_cast<uint16_t>(b);
    scratch.sums[b] += exponential(distance);
  }
}

// The tokens of a bucket in their order.
void sort_bucket(const Row& row, size_t bucket, SampleScratch& scratch) {
  scratch.order.clear();
  for (size_t i = 0; i < scratch.bucket.size(); ++i)
    if (scratch.bucket[i] == bucket) scratch.order.push_back(static_cast<int32_t>(i));
  std::ranges::sort(scratch.order, Before{row.logits});
}

// What is kept: all of the buckets before `bucket`, `members` of that one, whose p sum to `sum`.
struct Cut {
  size_t bucket = kBuckets, members = 0;
  double sum = 0;
};

Cut find_cut(const Row& row, SampleScratch& scratch) {
  const double total = std::reduce(scratch.sums.begin(), scratch.sums.end());
  const double none = std::numeric_limits<double>::infinity();
  const double reach = row.params.top_p < 1 ? row.params.top_p * total : none;
  Cut cut;
  for (size_t b = 0; b < kBuckets; ++b) {
    if (scratch.sums[b] == 0) continue;  // what is there, if anything, is never drawn
    // No p of the bucket is less; a little room for roundings.
    const double end = static_cast<double>(b + 1) / kBucketsPerUnit;
    const double least = b + 1 < kBuckets ? std::exp(-end) * (1 - 1e-9) : 0;
    if (cut.sum + scratch.sums[b] < reach && least >= row.params.min_p) {
      cut.sum += scratch.sums[b];
      continue;
    }
    sort_bucket(row, b, scratch);
    cut.bucket = b;
    for (cut.members = 0; cut.members < scratch.order.size(); ++cut.members) {
      const double p = row.probability(scratch.order[cut.members]);
      if (cut.sum > 0 && (cut.sum >= reach || p < row.params.min_p)) return cut;
      cut.sum += p;
    }
  }
  cut.bucket = kBuckets;
  return cut;
}

int32_t draw_of_buckets(const Row& row, const Cut& cut, SampleScratch& scratch) {
  double target = row.u * cut.sum;
  size_t at = 0, last = 0;
  for (; at < std::min(cut.bucket, kBuckets - 1); ++at) {
    if (target < scratch.sums[at]) break;
    target -= scratch.sums[at];
    if (scratch.sums[at] > 0) last = at;
  }
  const size_t members = at == cut.bucket ? cut.members : std::numeric_limits<size_t>::max();
  if (members == 0 || scratch.sums[at] == 0) {  // roundings: the last of what is kept
    sort_bucket(row, last, scratch);
    return draw(row, scratch.order, std::numeric_limits<double>::infinity());
  }
  sort_bucket(row, at, scratch);
  return draw(row, std::span(scratch.order).first(std::min(members, scratch.order.size())), target);
}

int32_t choose_of_all(const Row& row, SampleScratch& scratch) {
  const Cut cut = find_cut(row, scratch);
  if (row.params.typical_p >= 1) return draw_of_buckets(row, cut, scratch);
  std::vector<int32_t> kept;
  if (cut.bucket < kBuckets)
    kept.assign(scratch.order.begin(),
                scratch.order.begin() + static_cast<std::ptrdiff_t>(cut.members));
  for (size_t i = 0; i < scratch.bucket.size(); ++i)
    if (scratch.bucket[i] < cut.bucket) kept.push_back(static_cast<int32_t>(i));
  return draw_of_kept(row, kept, cut.sum);
}

}  // namespace

double sampling_uniform(uint64_t seed, int64_t position) {
  const RandomKey key{seed, stream_id("sample")};
  const PhiloxBlock block = philox(key, static_cast<uint64_t>(position));
  const uint64_t bits = (static_cast<uint64_t>(block[0]) << 32 | block[1]) >> 11;
  return static_cast<double>(bits) * 0x1p-53;
}

double log_normaliser(std::span<const float> logits) {
  const double largest = *std::ranges::max_element(logits);
  return largest + std::log(sum_of_exponentials(logits, largest));
}

void first_of_row(std::span<const float> logits, int64_t count, std::vector<int32_t>& order) {
  const Before before{logits};
  const size_t most = std::min(logits.size(), static_cast<size_t>(std::max<int64_t>(count, 0)));
  order.clear();
  if (most == 0) return;
  // A heap with the last of the first on top.
  for (size_t i = 0; i < logits.size(); ++i) {
    if (order.size() == most && !(logits[i] > logits[static_cast<size_t>(order[0])])) continue;
    if (order.size() == most) {
      std::ranges::pop_heap(order, before);
      order.pop_back();
    }
    order.push_back(static_cast<int32_t>(i));
    std::ranges::push_heap(order, before);
  }
  std::ranges::sort_heap(order, before);
}

SampledToken sample_row(const SamplingParams& params, std::span<const float> logits,
                        int64_t position, SampleScratch& scratch) {
  const auto best = std::ranges::max_element(logits);
  const Row row{params, logits, *best, sampling_uniform(params.seed, position)};
  const bool of_all = params.temperature > 0 && params.top_k == 0;
  if (of_all) deal(row, scratch);
  // At temperature 1 the buckets have the sum already.
  const double sum = of_all && params.temperature == 1
                         ? std::reduce(scratch.sums.begin(), scratch.sums.end())
                         : sum_of_exponentials(logits, row.largest);
  const double normaliser = row.largest + std::log(sum);
  if (!std::isfinite(normaliser)) return {-1, std::numeric_limits<double>::quiet_NaN()};
  const int32_t id = params.temperature == 0 ? static_cast<int32_t>(best - logits.begin())
                     : of_all                ? choose_of_all(row, scratch)
                                             : choose_of_first(row, scratch);
  return {id, static_cast<double>(logits[static_cast<size_t>(id)]) - normaliser};
}

}  // namespace trireme
