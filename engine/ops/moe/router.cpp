#include "engine/ops/moe/router.h"

#include "engine/ops/backend/pick_kernel.h"
#include "engine/ops/moe/router.kernels.h"
#include "engine/ops/moe/router_dtype.h"

namespace trireme {
namespace {

void check_router(const char* op, const ConstTensor& logits, const ConstTensor& experts,
                  const RouterArgs& args) {
  TRIREME_CHECK(logits.rank() == 2 && experts.rank() == 2, op, ": logits are ", logits.shape(),
                ", experts ", experts.shape(), ", expected (T, E) and (T, k)");
  const DType dtype = logits.dtype();
  TRIREME_CHECK(dtype == DType::kF32 || dtype == DType::kF64, op, ": logits are ", dtype,
                ", expected float32 or float64");
  const int64_t count = logits.size(1), k = experts.size(1);
  check_operand(op, "logits", logits, dtype, logits.shape());
  check_operand(op, "experts", experts, DType::kI32, {logits.size(0), k});
  TRIREME_CHECK(args.groups >= 1 && args.groups <= cpu::kMaxRouterGroups && args.kept_groups >= 1 &&
                    args.kept_groups <= args.groups && count % args.groups == 0,
                op, ": ", args.kept_groups, " of ", args.groups, " groups are kept, of ", count,
                " experts; expected 1 to ", cpu::kMaxRouterGroups,
                " equal groups, 1 to all of them kept");
  TRIREME_CHECK(k >= 1 && k <= count / args.groups * args.kept_groups, op, ": k is ", k,
                ", expected 1 to the ", count / args.groups * args.kept_groups,
                " eligible experts");
}

template <class T>
T* optional(const ConstTensor& t) {
  return t.present() ? const_cast<T*>(t.as<T>()) : nullptr;
}

}  // namespace

void router_forward(Ctx& ctx, const Tensor& scores, const Tensor& experts, const Tensor& weights,
                    const ConstTensor& logits, const ConstTensor& bias, const ConstTensor& valid,
                    const RouterArgs& args) {
  constexpr const char* kOp = "router_forward";
  check_router(kOp, logits, experts, args);
  const int64_t rows = logits.size(0), count = logits.size(1);
  check_operand(kOp, "scores", scores, logits.dtype(), logits.shape());
  check_operand(kOp, "weights", weights, logits.dtype(), experts.shape());
  if (bias.present()) check_operand(kOp, "bias", bias, logits.dtype(), {count});
  if (valid.present()) check_operand(kOp, "valid", valid, DType::kU8, {rows});
  if (ctx.planning()) return;
  const TimeScope scope(ctx.profile, TimeCategory::kOther);
  dispatch_router_dtype(logits.dtype(), [&]<class T>() {
    const cpu::RouterForward<T> kernel{
        .scores = scores.as<T>(),
        .experts = experts.as<int32_t>(),
        .weights = weights.as<T>(),
        .logits = logits.as<T>(),
        .bias = optional<T>(bias),
        .valid = optional<uint8_t>(valid),
        .rows = rows,
        .count = count,
        .k = experts.size(1),
        .groups = args.groups,
        .kept_groups = args.kept_groups,
        .scale = static_cast<T>(args.scale),
        .sigmoid = args.score == RouterScore::kSigmoid,
        .normalize = args.normalize,
        .by_logits = args.choose_by_logits && !bias.present(),
    };
    if (ctx.gpu != nullptr) return cuda::router_forward<T>(*ctx.gpu, kernel);
    TRIREME_KERNEL(router_forward<T>)(kernel, ctx.threads);
  });
}

void router_backward(Ctx& ctx, const Tensor& d_logits, const ConstTensor& d_weights,
                     const ConstTensor& scores, const ConstTensor& logits,
                     const ConstTensor& experts, const RouterLossGradients& losses,
                     const RouterArgs& args) {
  constexpr const char* kOp = "router_backward";
  check_router(kOp, logits, experts, args);
  const int64_t rows = logits.size(0), count = logits.size(1);
  const DType dtype = logits.dtype();
  check_operand(kOp, "d_logits", d_logits, dtype, logits.shape());
  check_operand(kOp, "d_weights", d_weights, dtype, experts.shape());
  check_operand(kOp, "scores", scores, dtype, logits.shape());
  if (losses.probability.present()) {
    TRIREME_CHECK(losses.probability.rank() == 2, kOp, ": probability is ",
                  losses.probability.shape(), ", expected (S, E)");
    check_operand(kOp, "probability", losses.probability, DType::kF64,
                  {losses.probability.size(0), count});
  }
  if (losses.segments.present())
    check_operand(kOp, "segments", losses.segments, DType::kI32, {rows});
  if (losses.importance.present())
    check_operand(kOp, "importance", losses.importance, DType::kF64, {count});
  if (losses.z.present()) check_operand(kOp, "z", losses.z, DType::kF64, {1});
  if (ctx.planning()) return;
  const TimeScope scope(ctx.profile, TimeCategory::kOther);
  dispatch_router_dtype(dtype, [&]<class T>() {
    const cpu::RouterBackward<T> kernel{
        .d_logits = d_logits.as<T>(),
        .d_weights = d_weights.as<T>(),
        .scores = scores.as<T>(),
        .logits = logits.as<T>(),
        .experts = experts.as<int32_t>(),
        .probability = optional<double>(losses.probability),
        .segments = optional<int32_t>(losses.segments),
        .importance = optional<double>(losses.importance),
        .rows = rows,
        .count = count,
        .k = experts.size(1),
        .scale = static_cast<T>(args.scale),
        .z = optional<double>(losses.z),
        .sigmoid = args.score == RouterScore::kSigmoid,
        .normalize = args.normalize,
    };
    if (ctx.gpu != nullptr) return cuda::router_backward<T>(*ctx.gpu, kernel);
    TRIREME_KERNEL(router_backward<T>)(kernel, ctx.threads);
  });
}

}  // namespace trireme
