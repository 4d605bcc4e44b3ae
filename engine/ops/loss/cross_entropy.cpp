#include "engine/ops/loss/cross_entropy.h"

#include <algorithm>
#include <cmath>

#include "engine/ops/backend/index_check.h"
#include "engine/ops/backend/pick_kernel.h"
#include "engine/ops/loss/cross_entropy.kernels.h"

namespace trireme {
namespace {

constexpr const char* kCrossEntropyOp = "softmax_cross_entropy";
constexpr const char* kPartOp = "partial_cross_entropy";

void check_logits(const ConstTensor& logits, const ConstTensor& targets) {
  TRIREME_CHECK(logits.rank() == 2 && (logits.size(1) <= 1 || logits.stride(1) == 1),
                kCrossEntropyOp, ": logits are ", logits.shape(),
                ", expected (N, V) with unit stride in V");
  TRIREME_CHECK(logits.dtype() == DType::kF32 || logits.dtype() == DType::kF64, kCrossEntropyOp,
                ": logits are ", logits.dtype(), ", expected float32 or float64");
  check_operand(kCrossEntropyOp, "targets", targets, DType::kI32, {logits.size(0)});
}

void check_operands(const Tensor& loss_sum, const Tensor& token_loss, const Tensor& d_logits,
                    const ConstTensor& logits, const ConstTensor& targets, const ConstTensor& scale,
                    int64_t valid_vocab) {
  check_logits(logits, targets);
  const int64_t rows = logits.size(0), vocab = logits.size(1);
  TRIREME_CHECK(valid_vocab >= 0 && valid_vocab <= vocab, kCrossEntropyOp, ": valid_vocab is ",
                valid_vocab, ", expected 0 to ", vocab);
  check_operand(kCrossEntropyOp, "loss_sum", loss_sum, DType::kF64, {1});
  check_operand(kCrossEntropyOp, "scale", scale, DType::kF64, {1});
  if (token_loss.present())
    check_operand(kCrossEntropyOp, "token_loss", token_loss, logits.dtype(), {rows});
  if (!d_logits.present()) return;
  check_shape(kCrossEntropyOp, "d_logits", d_logits, logits.shape());
  const DType d = d_logits.dtype();
  const bool narrowed = logits.dtype() == DType::kF32 && (d == DType::kBF16 || d == DType::kF16);
  TRIREME_CHECK(d == logits.dtype() || narrowed, kCrossEntropyOp, ": d_logits are ", d,
                ", not supported with logits of ", logits.dtype());
  TRIREME_CHECK(vocab <= 1 || d_logits.stride(1) == 1, kCrossEntropyOp, ": d_logits ",
                d_logits.shape(), " must have unit stride in V");
}

struct Operands {
  const Tensor &loss_sum, &token_loss, &d_logits;
  const ConstTensor &logits, &targets, &scale;
  int64_t valid_columns;
  const double* statistics;  // merged (N, 3), or nullptr: the logits are the whole rows
  int64_t first_column;
};

void run(Ctx& ctx, const Operands& o) {
  const int64_t rows = o.logits.size(0);
  const Activation row_loss = ctx.allocate("loss.rows", DType::kF64, Shape{rows});
  if (ctx.planning()) return;
  const TimeScope scope(ctx.profile, TimeCategory::kLoss);
  const auto run_as = [&]<class T>() {
    const cpu::CrossEntropy<T> args{
        .row_loss = row_loss->as<double>(),
        .token_loss = o.token_loss.present() ? o.token_loss.as<T>() : nullptr,
        .d_logits = o.d_logits.present() ? o.d_logits.raw() : nullptr,
        .d_dtype = o.d_logits.present() ? o.d_logits.dtype() : o.logits.dtype(),
        .logits = o.logits.as<T>(),
        .targets = o.targets.as<int32_t>(),
        .rows = rows,
        .columns = o.logits.size(1),
        .valid_columns = o.valid_columns,
        .logits_stride = o.logits.stride(0),
        .d_stride = o.d_logits.present() ? o.d_logits.stride(0) : 0,
        .scale = o.scale.as<double>(),
        .ignored_target = kIgnoredTarget,
        .statistics = o.statistics,
        .first_column = o.first_column,
    };
    if (ctx.gpu != nullptr) return cuda::cross_entropy<T>(*ctx.gpu, args);
    TRIREME_KERNEL(cross_entropy<T>)(args, ctx.threads);
  };
  o.logits.dtype() == DType::kF64 ? run_as.template operator()<double>()
                                  : run_as.template operator()<float>();
  if (ctx.gpu != nullptr)
    return cuda::add_all(*ctx.gpu, o.loss_sum.as<double>(), row_loss->as<double>(), rows);
  // One row after the other: the sum does not depend on how tokens are chunked.
  double sum = *o.loss_sum.as<double>();
  for (int64_t row = 0; row < rows; ++row) sum += row_loss->as<double>()[row];
  *o.loss_sum.as<double>() = sum;
}

void check_part(const char* op, const ConstTensor& logits, const VocabularyPart& part) {
  TRIREME_CHECK(part.first >= 0 && part.first + logits.size(1) <= part.total, op, ": columns ",
                part.first, " to ", part.first + logits.size(1), " exceed the vocabulary of ",
                part.total);
}

}  // namespace

void softmax_cross_entropy(Ctx& ctx, const Tensor& loss_sum, const Tensor& token_loss,
                           const Tensor& d_logits, const ConstTensor& logits,
                           const ConstTensor& targets, const ConstTensor& scale,
                           int64_t valid_vocab) {
  check_operands(loss_sum, token_loss, d_logits, logits, targets, scale, valid_vocab);
  TRIREME_CHECK(valid_vocab >= 1, kCrossEntropyOp, ": valid_vocab is ", valid_vocab,
                ", expected at least 1");
  if (!ctx.planning() && ctx.gpu == nullptr)
    check_indices(kCrossEntropyOp, "targets", targets, valid_vocab, kIgnoredTarget);
  run(ctx, {loss_sum, token_loss, d_logits, logits, targets, scale, valid_vocab, nullptr, 0});
}

void softmax_statistics(Ctx& ctx, const Tensor& statistics, const ConstTensor& logits,
                        const ConstTensor& targets, const VocabularyPart& part) {
  constexpr const char* kName = "softmax_statistics";
  check_logits(logits, targets);
  check_part(kName, logits, part);
  check_operand(kName, "statistics", statistics, DType::kF64, {logits.size(0), 3});
  if (ctx.planning()) return;
  const TimeScope scope(ctx.profile, TimeCategory::kLoss);
  if (ctx.gpu == nullptr) check_indices(kName, "targets", targets, part.total, kIgnoredTarget);
  const auto run_as = [&]<class T>() {
    const cpu::SoftmaxStatistics<T> args{.statistics = statistics.as<double>(),
                                         .logits = logits.as<T>(),
                                         .targets = targets.as<int32_t>(),
                                         .rows = logits.size(0),
                                         .columns = logits.size(1),
                                         .logits_stride = logits.stride(0),
                                         .first_column = part.first,
                                         .ignored_target = kIgnoredTarget};
    if (ctx.gpu != nullptr) return cuda::softmax_statistics<T>(*ctx.gpu, args);
    TRIREME_KERNEL(softmax_statistics<T>)(args, ctx.threads);
  };
  logits.dtype() == DType::kF64 ? run_as.template operator()<double>()
                                : run_as.template operator()<float>();
}

void merge_softmax_statistics(Ctx& ctx, const Tensor& merged, const ConstTensor& parts) {
  constexpr const char* kName = "merge_softmax_statistics";
  TRIREME_CHECK(parts.rank() == 3 && parts.size(0) >= 1 && parts.size(2) == 3, kName,
                ": parts are ", parts.shape(), ", expected (P, N, 3)");
  check_operand(kName, "parts", parts, DType::kF64, parts.shape());
  check_operand(kName, "merged", merged, DType::kF64, {parts.size(1), 3});
  if (ctx.planning()) return;
  const int64_t rows = parts.size(1);
  const double* in = parts.as<double>();
  double* out = merged.as<double>();
  if (ctx.gpu != nullptr)
    return cuda::merge_softmax_statistics(*ctx.gpu, out, in, parts.size(0), rows);
  for (int64_t row = 0; row < rows; ++row) {
    const auto part = [&](int64_t p) { return in + (p * rows + row) * 3; };
    double largest = part(0)[0], target = part(0)[2], total = 0;
    for (int64_t p = 1; p < parts.size(0); ++p) {
      largest = std::max(largest, part(p)[0]);
      target = std::max(target, part(p)[2]);
    }
    for (int64_t p = 0; p < parts.size(0); ++p)
      total += part(p)[1] * std::exp(part(p)[0] - largest);
    out[row * 3] = largest;
    out[row * 3 + 1] = total;
    out[row * 3 + 2] = target;
  }
}

void partial_cross_entropy(Ctx& ctx, const Tensor& loss_sum, const Tensor& token_loss,
                           const Tensor& d_logits, const ConstTensor& logits,
                           const ConstTensor& targets, const ConstTensor& scale,
                           const ConstTensor& merged, const VocabularyPart& part) {
  check_operands(loss_sum, token_loss, d_logits, logits, targets, scale, logits.size(1));
  check_part(kPartOp, logits, part);
  check_operand(kPartOp, "merged", merged, DType::kF64, {logits.size(0), 3});
  run(ctx, {loss_sum, token_loss, d_logits, logits, targets, scale, logits.size(1),
            ctx.planning() ? nullptr : merged.as<double>(), part.first});
}

}  // namespace trireme
