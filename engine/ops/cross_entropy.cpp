#include "engine/ops/cross_entropy.h"

#include "engine/ops/cpu/cross_entropy.h"
#include "engine/ops/index_check.h"

namespace trireme {
namespace {

constexpr const char* kOp = "softmax_cross_entropy";

void check_operands(const Tensor& loss_sum, const Tensor& token_loss, const Tensor& d_logits,
                    const ConstTensor& logits, const ConstTensor& targets, const ConstTensor& scale,
                    int64_t valid_vocab) {
  TRIREME_CHECK(logits.rank() == 2 && (logits.size(1) <= 1 || logits.stride(1) == 1), kOp,
                ": logits are ", logits.shape(), ", expected (N, V) with unit stride in V");
  TRIREME_CHECK(logits.dtype() == DType::kF32 || logits.dtype() == DType::kF64, kOp,
                ": logits are ", logits.dtype(), ", expected float32 or float64");
  const int64_t rows = logits.size(0), vocab = logits.size(1);
  TRIREME_CHECK(valid_vocab >= 1 && valid_vocab <= vocab, kOp, ": valid_vocab is ", valid_vocab,
                ", expected 1 to ", vocab);
  check_operand(kOp, "loss_sum", loss_sum, DType::kF64, {1});
  check_operand(kOp, "targets", targets, DType::kI32, {rows});
  check_operand(kOp, "scale", scale, DType::kF64, {1});
  if (token_loss.present()) check_operand(kOp, "token_loss", token_loss, logits.dtype(), {rows});
  if (!d_logits.present()) return;
  check_shape(kOp, "d_logits", d_logits, logits.shape());
  const DType d = d_logits.dtype();
  const bool narrowed = logits.dtype() == DType::kF32 && (d == DType::kBF16 || d == DType::kF16);
  TRIREME_CHECK(d == logits.dtype() || narrowed, kOp, ": d_logits are ", d, " beside ",
                logits.dtype(), " logits");
  TRIREME_CHECK(vocab == 1 || d_logits.stride(1) == 1, kOp, ": d_logits ", d_logits.shape(),
                " must have unit stride in V");
}

}  // namespace

void softmax_cross_entropy(Ctx& ctx, const Tensor& loss_sum, const Tensor& token_loss,
                           const Tensor& d_logits, const ConstTensor& logits,
                           const ConstTensor& targets, const ConstTensor& scale,
                           int64_t valid_vocab) {
  check_operands(loss_sum, token_loss, d_logits, logits, targets, scale, valid_vocab);
  const int64_t rows = logits.size(0);
  const Activation row_loss = ctx.allocate("loss.rows", DType::kF64, Shape{rows});
  if (ctx.planning()) return;
  const TimeScope scope(ctx.profile, TimeCategory::kLoss);
  check_indices(kOp, "targets", targets, valid_vocab, kIgnoredTarget);
  const auto run = [&]<class T>() {
    const cpu::CrossEntropy<T> args{
        .row_loss = row_loss->as<double>(),
        .token_loss = token_loss.present() ? token_loss.as<T>() : nullptr,
        .d_logits = d_logits.present() ? d_logits.raw() : nullptr,
        .d_dtype = d_logits.present() ? d_logits.dtype() : logits.dtype(),
        .logits = logits.as<T>(),
        .targets = targets.as<int32_t>(),
        .rows = rows,
        .columns = logits.size(1),
        .valid_columns = valid_vocab,
        .logits_stride = logits.stride(0),
        .d_stride = d_logits.present() ? d_logits.stride(0) : 0,
        .scale = static_cast<T>(*scale.as<double>()),
        .ignored_target = kIgnoredTarget,
    };
    TRIREME_KERNEL(cross_entropy<T>)(args, ctx.threads);
  };
  logits.dtype() == DType::kF64 ? run.template operator()<double>()
                                : run.template operator()<float>();
  // In the order of the rows, one by one: the sum does not depend on how tokens are chunked.
  double sum = *loss_sum.as<double>();
  for (int64_t row = 0; row < rows; ++row) sum += row_loss->as<double>()[row];
  *loss_sum.as<double>() = sum;
}

}  // namespace trireme
