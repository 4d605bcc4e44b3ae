// Sampling from one row on the CPU. The kept tokens and the sampled one are positions in an order,
// which RowOrder finds without sorting the row.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "engine/ops/backend/pick_kernel.h"
#include "engine/ops/sampling/row_order.h"
#include "engine/ops/sampling/sample.cpu.h"
#include "engine/ops/sampling/sample.h"

namespace trireme {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

cpu::RowRange<float> range_of(std::span<const float> logits) {
  cpu::RowRange<float> range{};
  TRIREME_KERNEL(row_range<float>)(&range, logits.data(), std::ssize(logits));
  return range;
}

// Sum of the weights, which are written if `weights` is not null.
double weigh(std::span<const float> logits, double largest, double temperature, double* weights) {
  double sum = 0;
  TRIREME_KERNEL(row_weights<float>)
  ({logits.data(), std::ssize(logits), largest, temperature, weights, &sum});
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

// Stops at the first token that is not kept: keeps the first `count`, or as many as reach a weight;
// only the first may be below `least`.
struct KeptStop {
  int64_t count = std::numeric_limits<int64_t>::max();
  double reach = kInfinite, least = 0, temperature = 1;
  BinTotal kept = {};
  bool passes(const BinTotal& total, double end) {
    if (kept.count + total.count > count || kept.weight + total.weight >= reach) return false;
    if (least > 0 && !(std::exp(-end / temperature) * (1 - 1e-9) >= least)) return false;
    add(total);
    return true;
  }
  bool stops(double weight) {
    if (kept.count > 0 && (kept.count >= count || kept.weight >= reach || weight < least))
      return true;
    add({weight, 1});
    return false;
  }
  void add(const BinTotal& total) {
    kept.weight += total.weight;
    kept.count += total.count;
  }
};

// Stops at the token with which the running sum exceeds `target`.
struct DrawnStop {
  double target, sum = 0;
  bool passes(const BinTotal& total, double /*end*/) {
    if (sum + total.weight > target) return false;
    sum += total.weight;
    return true;
  }
  bool stops(double weight) {
    if (sum + weight > target) return true;
    sum += weight;
    return false;
  }
};

struct RowScratch {
  std::vector<double> weights;
  RowOrderScratch order;
};

class RowChoice {
 public:
  RowChoice(const RowSamplingParams& params, std::span<const float> logits,
            const cpu::RowRange<float>& range, RowScratch& scratch)
      : params_(params), logits_(logits), largest_(range.largest), scratch_(scratch) {
    scratch.weights.resize(logits.size());
    sum_ = weigh(logits, largest_, params.temperature, scratch_.weights.data());
    high_ = std::min(largest_ - static_cast<double>(range.smallest),
                     cpu::kNegligibleDistance * params.temperature);
  }

  double sum() const { return sum_; }

  // Token for a random number u.
  int32_t choose(double u);

 private:
  double weight(int32_t id) const { return scratch_.weights[static_cast<size_t>(id)]; }
  // By descending weight.
  RowOrder order() { return {{logits_, scratch_.weights, largest_}, high_, scratch_.order}; }

  // Token at which the running sum exceeds `target`, among the tokens before `end` (negative: all).
  int32_t draw(const RowOrder& order, int32_t end, double target) const;

  // Stops at the end of the first tokens, which top_k, top_p and min_p keep.
  KeptStop kept_stop(const RowOrder& order) const {
    KeptStop stop{.least = params_.min_p, .temperature = params_.temperature};
    if (params_.top_k > 0) stop.count = params_.top_k;
    if (params_.top_p >= 1) return stop;
    double total = sum_;
    if (params_.top_k > 0) {  // top_p refers to the weight of the first top_k
      KeptStop first{.count = params_.top_k};
      order.walk(first);
      total = first.kept.weight;
    }
    stop.reach = params_.top_p * total;
    return stop;
  }

  // With q = weight / sum a token's surprise is -ln q = distance + ln sum, and their mean H the
  // same for distances: both differ from largest - l by a factor and a term common to all tokens.
  // Returns the sum of the remaining weights.
  double keep_typical(double sum) {
    double moment = 0;
    TRIREME_KERNEL(row_moment<float>)
    ({logits_.data(), scratch_.weights.data(), std::ssize(logits_), largest_, 0}, &moment);
    const double mean = moment / sum;
    const RowOrder usual({logits_, scratch_.weights, largest_, mean}, std::max(mean, high_ - mean),
                         scratch_.order);
    KeptStop stop{.reach = params_.typical_p * sum};
    if (const int32_t end = usual.walk(stop); end >= 0) usual.drop_from(end);
    return stop.kept.weight;
  }

  const RowSamplingParams& params_;
  std::span<const float> logits_;
  double largest_, high_ = 0, sum_ = 0;
  RowScratch& scratch_;
};

int32_t RowChoice::choose(double u) {
  const RowOrder tokens = order();
  KeptStop stop = kept_stop(tokens);
  int32_t end = -1;
  const bool all = params_.top_k == 0 && params_.top_p >= 1 && params_.min_p == 0;
  if (all)
    stop.kept.weight = sum_;
  else
    end = tokens.walk(stop);
  if (params_.typical_p >= 1) return draw(tokens, end, u * stop.kept.weight);
  if (end >= 0) tokens.drop_from(end);
  const double left = keep_typical(stop.kept.weight);
  return draw(order(), -1, u * left);
}

int32_t RowChoice::draw(const RowOrder& order, int32_t end, double target) const {
  const Before before{logits_};
  const auto kept = [&](int32_t id) { return end < 0 || before(id, end); };
  DrawnStop stop{target};
  if (const int32_t id = order.walk(stop); id >= 0 && kept(id)) return id;
  // Rounding errors: the last of the kept tokens.
  int32_t last = -1;
  for (int32_t id = 0; id < std::ssize(logits_); ++id)
    if (weight(id) > 0 && kept(id) && (last < 0 || before(last, id))) last = id;
  return last;
}

}  // namespace

double sampling_uniform(uint64_t seed, int64_t position) {
  const RandomKey key{seed, stream_id("sample")};
  const PhiloxBlock block = philox(key, static_cast<uint64_t>(position));
  const uint64_t bits = (static_cast<uint64_t>(block[0]) << 32 | block[1]) >> 11;
  return static_cast<double>(bits) * 0x1p-53;
}

double log_sum_exp(std::span<const float> logits) {
  const double largest = range_of(logits).largest;
  return largest + std::log(weigh(logits, largest, 1, nullptr));
}

void first_of_row(std::span<const float> logits, int64_t count, std::vector<int32_t>& order) {
  const Before before{logits};
  const size_t most = std::min(logits.size(), static_cast<size_t>(std::max<int64_t>(count, 0)));
  order.clear();
  if (most == 0) return;
  // Heap with the last of the first tokens on top.
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

SampledToken sample_row(const RowSamplingParams& params, std::span<const float> logits,
                        int64_t position) {
  thread_local RowScratch scratch;
  const cpu::RowRange<float> range = range_of(logits);
  const auto logprob_of = [&](int32_t id, double sum) {
    const double normalizer = range.largest + std::log(sum);
    if (!std::isfinite(normalizer))
      return SampledToken{-1, std::numeric_limits<double>::quiet_NaN()};
    return SampledToken{id, static_cast<double>(logits[static_cast<size_t>(id)]) - normalizer};
  };
  if (params.temperature == 0) {
    const auto first = std::ranges::find(logits, range.largest) - logits.begin();
    return logprob_of(static_cast<int32_t>(first % std::ssize(logits)),
                      weigh(logits, range.largest, 1, nullptr));
  }
  RowChoice row(params, logits, range, scratch);
  const double sum = params.temperature == 1 ? row.sum() : weigh(logits, range.largest, 1, nullptr);
  if (!std::isfinite(sum)) return logprob_of(0, sum);
  return logprob_of(row.choose(sampling_uniform(params.seed, position)), sum);
}

}  // namespace trireme
