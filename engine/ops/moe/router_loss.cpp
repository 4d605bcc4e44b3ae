#include "engine/ops/moe/router_loss.h"

#include <cmath>

#include "engine/core/parallel_for.h"
#include "engine/ops/loss/cross_entropy.h"
#include "engine/ops/moe/router_loss.cuda.h"

namespace trireme {
namespace {

// Values of one row for the sums: 1 / sum of the scores, and logsumexp(l)^2. Zero for padding.
template <class T>
void row_values(const T* scores, const T* logits, int64_t experts, double* inverse,
                double* square) {
  double total = 0, top = -INFINITY, exponentials = 0;
  for (int64_t e = 0; e < experts; ++e) {
    total += static_cast<double>(scores[e]);
    top = std::max(top, static_cast<double>(logits[e]));
  }
  for (int64_t e = 0; e < experts; ++e)
    exponentials += std::exp(static_cast<double>(logits[e]) - top);
  const double lse = top + std::log(exponentials);
  *inverse = 1.0 / total;
  *square = lse * lse;
}

struct RoutedRows {
  const int32_t *experts, *segments, *targets;
  int64_t rows, count, k;
  bool padding(int64_t t) const { return experts[t * k] < 0; }
  int64_t segment(int64_t t) const { return segments == nullptr ? 0 : segments[t]; }
};

// Sums of q over the tokens, for experts [begin, end).
template <class T>
void add_probabilities(const RoutedRows& r, const RouterSums& sums, const T* scores,
                       const double* inverse, int64_t begin, int64_t end) {
  auto* out = sums.probabilities.as<double>();
  for (int64_t t = 0; t < r.rows; ++t) {
    if (r.padding(t)) continue;
    double* row = out + r.segment(t) * r.count;
    for (int64_t e = begin; e < end; ++e)
      row[e] += static_cast<double>(scores[t * r.count + e]) * inverse[t];
  }
}

template <class T>
void add_choices(const RoutedRows& r, const RouterSums& sums, const T* weights,
                 const double* squares) {
  for (int64_t t = 0; t < r.rows; ++t) {
    if (r.padding(t)) continue;
    sums.tokens.as<double>()[r.segment(t)] += 1;
    if (r.targets != nullptr && r.targets[t] != kIgnoredTarget) *sums.loss_tokens.as<double>() += 1;
    *sums.z.as<double>() += squares[t];
    for (int64_t j = 0; j < r.k; ++j) {
      const int32_t e = r.experts[t * r.k + j];
      sums.counts.as<double>()[r.segment(t) * r.count + e] += 1;
      sums.importance.as<double>()[e] += static_cast<double>(weights[t * r.k + j]);
    }
  }
}

// value += CV^2 of x; d = factor * gradient of it
double squared_variation(const double* x, int64_t n, double factor, double* d) {
  double mean = 0, variance = 0;
  for (int64_t i = 0; i < n; ++i) mean += x[i] / static_cast<double>(n);
  for (int64_t i = 0; i < n; ++i)
    variance += (x[i] - mean) * (x[i] - mean) / static_cast<double>(n);
  const double base = mean * mean + 1e-10;
  for (int64_t i = 0; i < n; ++i)
    d[i] = factor * 2 / static_cast<double>(n) *
           ((x[i] - mean) / base - variance * mean / (base * base));
  return variance / base;
}

template <class T>
const T* optional_values(const ConstTensor& t) {
  return t.present() ? t.as<T>() : nullptr;
}

void statistics_on_gpu(Ctx& ctx, const RouterSums& sums, const ConstTensor& scores,
                       const ConstTensor& logits, const ConstTensor& experts,
                       const ConstTensor& weights, const RouterTokens& tokens) {
  const int64_t rows = experts.size(0), count = sums.counts.size(1);
  const int64_t segments = sums.tokens.size(0), blocks = cuda::router_blocks(rows, segments);
  const Activation values = ctx.allocate("router.row_values", DType::kF64, {2, rows});
  const Activation partial =
      ctx.allocate("router.partial_sums", DType::kF64, {blocks + 1, segments, 3 * count + 3});
  if (ctx.planning()) return;
  const TimeScope scope(ctx.profile, TimeCategory::kOther);
  const cuda::RouterStatistics args{
      .counts = sums.counts.as<double>(),
      .probabilities = sums.probabilities.as<double>(),
      .tokens = sums.tokens.as<double>(),
      .importance = sums.importance.as<double>(),
      .load = sums.load.as<double>(),
      .z = sums.z.as<double>(),
      .loss_tokens = sums.loss_tokens.as<double>(),
      .experts = experts.as<int32_t>(),
      .segments = optional_values<int32_t>(tokens.segments),
      .targets = optional_values<int32_t>(tokens.targets),
      .rows = rows,
      .count = count,
      .k = experts.size(1),
      .segment_count = segments,
      .ignored_target = kIgnoredTarget,
      .values = values->as<double>(),
      .partial = partial->as<double>(),
      .blocks = blocks,
  };
  const auto run = [&]<class T>() {
    cuda::router_statistics<T>(*ctx.gpu, args, scores.as<T>(), logits.as<T>(), weights.as<T>());
  };
  logits.dtype() == DType::kF64 ? run.template operator()<double>()
                                : run.template operator()<float>();
}

void losses_on_gpu(cuda::Context& gpu, const Tensor& values, const RouterSumGradients& gradients,
                   const RouterSums& sums, const ConstTensor& scale, const RouterLossArgs& args) {
  cuda::router_losses(gpu, {.values = values.as<double>(),
                            .d_probability = gradients.d_probability.as<double>(),
                            .d_importance = gradients.d_importance.as<double>(),
                            .d_load = gradients.d_load.as<double>(),
                            .d_z = gradients.d_z.as<double>(),
                            .counts = sums.counts.as<double>(),
                            .probabilities = sums.probabilities.as<double>(),
                            .tokens = sums.tokens.as<double>(),
                            .importance = sums.importance.as<double>(),
                            .load = sums.load.as<double>(),
                            .z = sums.z.as<double>(),
                            .loss_tokens = sums.loss_tokens.as<double>(),
                            .scale = scale.as<double>(),
                            .shares = optional_values<double>(args.shares),
                            .segments = sums.counts.size(0),
                            .count = sums.counts.size(1),
                            .k = args.k,
                            .balance_factor = args.balance,
                            .z_factor = args.z,
                            .importance_factor = args.importance,
                            .load_factor = args.load});
}

void zero(const Tensor& t) { std::fill_n(t.as<double>(), t.numel(), 0.0); }

}  // namespace

RouterSums::RouterSums(const Tensor& flat, int64_t segments, int64_t experts) {
  check_operand("router sums", "flat", flat, DType::kF64, {size(segments, experts)});
  int64_t at = 0;
  const auto take = [&](const Shape& shape) {
    const int64_t begin = std::exchange(at, at + shape.numel());
    return flat.slice(0, begin, at).reshape(shape);
  };
  counts = take({segments, experts});
  probabilities = take({segments, experts});
  tokens = take({segments});
  importance = take({experts});
  load = take({experts});
  z = take({1});
  loss_tokens = take({1});
}

void router_statistics(Ctx& ctx, const RouterSums& sums, const ConstTensor& scores,
                       const ConstTensor& logits, const ConstTensor& experts,
                       const ConstTensor& weights, const RouterTokens& tokens) {
  constexpr const char* kOp = "router_statistics";
  const int64_t rows = experts.size(0), count = sums.counts.size(1), k = experts.size(1);
  check_operand(kOp, "experts", experts, DType::kI32, {rows, k});
  check_operand(kOp, "logits", logits, logits.dtype(), {rows, count});
  check_operand(kOp, "scores", scores, logits.dtype(), {rows, count});
  check_operand(kOp, "weights", weights, logits.dtype(), {rows, k});
  if (tokens.segments.present())
    check_operand(kOp, "segments", tokens.segments, DType::kI32, {rows});
  if (tokens.targets.present()) check_operand(kOp, "targets", tokens.targets, DType::kI32, {rows});
  if (ctx.gpu != nullptr)
    return statistics_on_gpu(ctx, sums, scores, logits, experts, weights, tokens);
  const Activation values = ctx.allocate("router.row_values", DType::kF64, {2, rows});
  if (ctx.planning()) return;
  const TimeScope scope(ctx.profile, TimeCategory::kOther);
  for (const Tensor& t : {sums.counts, sums.probabilities, sums.tokens, sums.importance, sums.load,
                          sums.z, sums.loss_tokens})
    zero(t);
  const RoutedRows r{experts.as<int32_t>(),
                     optional_values<int32_t>(tokens.segments),
                     optional_values<int32_t>(tokens.targets),
                     rows,
                     count,
                     k};
  const int64_t segments = sums.tokens.size(0);
  for (int64_t t = 0; t < rows; ++t)
    TRIREME_CHECK(r.padding(t) || (r.segment(t) >= 0 && r.segment(t) < segments), kOp, ": token ",
                  t, " is in segment ", r.segment(t), " of ", segments);
  auto* inverse = values->as<double>();
  double* squares = inverse + rows;
  const auto run = [&]<class T>() {
    parallel_for(ctx.threads, rows, 4096 / (count + 1) + 1, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t)
        row_values(scores.as<T>() + t * count, logits.as<T>() + t * count, count, inverse + t,
                   squares + t);
    });
    // The threads divide the experts, not the tokens, so the order of the sums is that of the
    // tokens.
    parallel_for(ctx.threads, count, 4096 / (rows + 1) + 1, [&](int64_t begin, int64_t end) {
      add_probabilities(r, sums, scores.as<T>(), inverse, begin, end);
    });
    add_choices(r, sums, weights.as<T>(), squares);
  };
  logits.dtype() == DType::kF64 ? run.template operator()<double>()
                                : run.template operator()<float>();
}

void router_losses(Ctx& ctx, const Tensor& values, const RouterSumGradients& gradients,
                   const RouterSums& sums, const ConstTensor& scale, const RouterLossArgs& args) {
  constexpr const char* kOp = "router_losses";
  const int64_t segments = sums.counts.size(0), count = sums.counts.size(1);
  check_operand(kOp, "values", values, DType::kF64, {4});
  check_operand(kOp, "scale", scale, DType::kF64, {1});
  check_operand(kOp, "d_probability", gradients.d_probability, DType::kF64, {segments, count});
  check_operand(kOp, "d_importance", gradients.d_importance, DType::kF64, {count});
  check_operand(kOp, "d_load", gradients.d_load, DType::kF64, {count});
  check_operand(kOp, "d_z", gradients.d_z, DType::kF64, {1});
  if (args.shares.present()) check_operand(kOp, "shares", args.shares, DType::kF64, {count});
  if (ctx.planning()) return;
  if (ctx.gpu != nullptr) return losses_on_gpu(*ctx.gpu, values, gradients, sums, scale, args);
  for (const Tensor& t :
       {gradients.d_probability, gradients.d_importance, gradients.d_load, gradients.d_z})
    zero(t);
  double n = 0;
  for (int64_t s = 0; s < segments; ++s) n += sums.tokens.as<double>()[s];
  if (n == 0) return;
  const double counted = *sums.loss_tokens.as<double>();
  const double weight = counted * *scale.as<double>();
  auto* value = values.as<double>();
  for (int64_t s = 0; s < segments; ++s) {
    const double tokens = sums.tokens.as<double>()[s];
    if (tokens == 0) continue;
    for (int64_t e = 0; e < count; ++e) {
      const int64_t i = s * count + e;
      const double share = args.shares.present() ? args.shares.as<double>()[e]
                                                 : sums.counts.as<double>()[i] /
                                                       (static_cast<double>(args.k) * tokens);
      // n_s / n f P with P = sum / n_s
      const double slope = args.balance * static_cast<double>(count) * share / n;
      value[0] += counted * slope * sums.probabilities.as<double>()[i];
      gradients.d_probability.as<double>()[i] = weight * slope;
    }
  }
  value[1] += counted * args.z * *sums.z.as<double>() / n;
  *gradients.d_z.as<double>() = weight * args.z / n;
  value[2] += counted * args.importance *
              squared_variation(sums.importance.as<double>(), count, weight * args.importance,
                                gradients.d_importance.as<double>());
  value[3] += counted * args.load *
              squared_variation(sums.load.as<double>(), count, weight * args.load,
                                gradients.d_load.as<double>());
}

}  // namespace trireme
