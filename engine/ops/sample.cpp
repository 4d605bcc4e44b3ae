#include "engine/ops/sample.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "engine/core/parallel_for.h"
#include "engine/ops/cuda/sample.h"

namespace trireme {
namespace {

double log_sum_exp(std::span<const float> logits, double largest) {
  double sum = 0;
  for (float l : logits) sum += std::exp(static_cast<double>(l) - largest);
  return largest + std::log(sum);
}

// The number of tokens of the order that the filters keep, and the sum of their p.
struct Kept {
  size_t count = 0;
  double sum = 0;
};

Kept filter(const SamplingParams& params, const std::vector<double>& probability, double total) {
  const double reach = params.top_p * total;
  Kept kept;
  while (kept.count < probability.size()) {
    const double p = probability[kept.count];
    if (kept.count > 0 && (kept.sum >= reach || p < params.min_p * probability[0])) break;
    kept.sum += p;
    ++kept.count;
  }
  return kept;
}

}  // namespace

double sampling_uniform(uint64_t seed, int64_t position) {
  const RandomKey key{seed, stream_id("sample")};
  const PhiloxBlock block = philox(key, static_cast<uint64_t>(position));
  const uint64_t bits = (static_cast<uint64_t>(block[0]) << 32 | block[1]) >> 11;
  return static_cast<double>(bits) * 0x1p-53;
}

SampledToken sample_row(const SamplingParams& params, std::span<const float> logits,
                        int64_t position, SampleScratch& scratch) {
  const auto best = std::ranges::max_element(logits);
  const double largest = *best;
  const double normaliser = log_sum_exp(logits, largest);
  if (!std::isfinite(normaliser)) return {-1, std::numeric_limits<double>::quiet_NaN()};
  const auto result = [&](int32_t id) {
    return SampledToken{id, static_cast<double>(logits[static_cast<size_t>(id)]) - normaliser};
  };
  if (params.temperature == 0) return result(static_cast<int32_t>(best - logits.begin()));

  std::vector<int32_t>& order = scratch.order;
  order.resize(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto above = [&](int32_t a, int32_t b) {
    const float la = logits[static_cast<size_t>(a)], lb = logits[static_cast<size_t>(b)];
    return la != lb ? la > lb : a < b;
  };
  // Only top_p and min_p need the order of more than the top_k tokens.
  size_t first = order.size();
  if (params.top_k > 0) first = std::min(first, static_cast<size_t>(params.top_k));
  std::ranges::partial_sort(order, order.begin() + static_cast<std::ptrdiff_t>(first), above);
  std::vector<double>& probability = scratch.probability;
  probability.resize(first);
  double total = 0;
  for (size_t i = 0; i < first; ++i) {
    const double logit = logits[static_cast<size_t>(order[i])];
    probability[i] = std::exp((logit - largest) / params.temperature);
    total += probability[i];
  }
  const Kept kept = filter(params, probability, total);
  double target = sampling_uniform(params.seed, position) * kept.sum;
  for (size_t i = 0; i + 1 < kept.count; ++i) {
    if (target < probability[i]) return result(order[i]);
    target -= probability[i];
  }
  return result(order[kept.count - 1]);
}

void sample_rows(Ctx& ctx, const Tensor& id, const Tensor& logprob, const ConstTensor& logits,
                 const SampleRows& rows) {
  constexpr const char* kOp = "sample_rows";
  TRIREME_CHECK(logits.rank() == 2 && logits.size(1) > 0, kOp, ": logits are ", logits.shape(),
                ", expected (R, V) with V > 0");
  check_operand(kOp, "logits", logits, DType::kF32, logits.shape());
  const Shape each{logits.size(0)};
  check_operand(kOp, "id", id, DType::kI32, each);
  check_operand(kOp, "logprob", logprob, DType::kF64, each);
  check_operand(kOp, "temperature", rows.temperature, DType::kF64, each);
  check_operand(kOp, "top_p", rows.top_p, DType::kF64, each);
  check_operand(kOp, "min_p", rows.min_p, DType::kF64, each);
  check_operand(kOp, "top_k", rows.top_k, DType::kI64, each);
  check_operand(kOp, "seed", rows.seed, DType::kI64, each);
  check_operand(kOp, "position", rows.position, DType::kI64, each);
  if (ctx.planning()) return;
  const TimeScope scope(ctx.profile, TimeCategory::kOther);
  const int64_t columns = logits.size(1);
  const cuda::SampleArgs args{.id = id.as<int32_t>(),
                              .logprob = logprob.as<double>(),
                              .logits = logits.as<float>(),
                              .temperature = rows.temperature.as<double>(),
                              .top_p = rows.top_p.as<double>(),
                              .min_p = rows.min_p.as<double>(),
                              .top_k = rows.top_k.as<int64_t>(),
                              .seed = rows.seed.as<int64_t>(),
                              .position = rows.position.as<int64_t>(),
                              .rows = logits.size(0),
                              .columns = columns};
  if (ctx.gpu != nullptr) return cuda::sample_rows(*ctx.gpu, args);
  parallel_for(ctx.threads, args.rows, 1, [&](int64_t begin, int64_t end) {
    SampleScratch scratch;
    for (int64_t r = begin; r < end; ++r) {
      const SamplingParams params{.temperature = args.temperature[r],
                                  .top_k = args.top_k[r],
                                  .top_p = args.top_p[r],
                                  .min_p = args.min_p[r],
                                  .seed = static_cast<uint64_t>(args.seed[r])};
      const std::span<const float> row(args.logits + r * columns, static_cast<size_t>(columns));
      const SampledToken token = sample_row(params, row, args.position[r], scratch);
      args.id[r] = token.id;
      args.logprob[r] = token.logprob;
    }
  });
}

}  // namespace trireme
