#include "engine/ops/moe/expert_rows.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "engine/ops/backend/pick_kernel.h"
#include "engine/ops/moe/expert_order.cuda.h"
#include "engine/ops/moe/expert_rows.kernels.h"

namespace trireme {
namespace {

// Operands common to both directions of combine_rows: y (or dy) (T, C), rows (N, C), places (T, k).
void check_combine(const char* op, const char* name, const ConstTensor& y, const ConstTensor& rows,
                   const ConstTensor& places) {
  TRIREME_CHECK(y.rank() == 2 && rows.rank() == 2, op, ": ", name, " is ", y.shape(), ", rows ",
                rows.shape(), ", expected matrices");
  TRIREME_CHECK(places.rank() == 2 && places.size(0) == y.size(0), op, ": places are ",
                places.shape(), ", expected (", y.size(0), ", k)");
  check_operand(op, "places", places, DType::kI32, places.shape());
  check_operand(op, "rows", rows, y.dtype(), {rows.size(0), y.size(1)});
  check_operand(op, name, y, y.dtype(), y.shape());
}

void order_on_gpu(Ctx& ctx, const Tensor& pairs, const Tensor& places, const Tensor& counts,
                  const ConstTensor& experts) {
  const int64_t n = experts.numel(), num_experts = counts.size(0), chunks = cuda::order_chunks(n);
  const Activation chunk_counts =
      ctx.allocate("experts.chunk_counts", DType::kI32, {num_experts, chunks});
  if (ctx.planning()) return;
  const TimeScope scope(ctx.profile, TimeCategory::kOther);
  cuda::order_by_expert(*ctx.gpu, {.pairs = pairs.as<int32_t>(),
                                   .places = places.as<int32_t>(),
                                   .experts = experts.as<int32_t>(),
                                   .order = {.counts = chunk_counts->as<int32_t>(),
                                             .totals = counts.as<int64_t>(),
                                             .n = n,
                                             .buckets = num_experts,
                                             .chunks = chunks}});
}

void drop_on_gpu(Ctx& ctx, const Tensor& experts, const Tensor& dropped,
                 const ConstTensor& all_experts, const ConstTensor& all_rows, int64_t first,
                 int64_t num_experts, int64_t capacity) {
  const int64_t tokens = all_experts.size(0), k = all_experts.size(1);
  const int64_t buckets = std::max(num_experts, cuda::kDigitBuckets);
  const Activation order = ctx.allocate("experts.token_order", DType::kI64, {2, tokens});
  const Activation counts =
      ctx.allocate("experts.chunk_counts", DType::kI32, {buckets, cuda::order_chunks(tokens * k)});
  const Activation totals = ctx.allocate("experts.taken", DType::kI64, {buckets});
  if (ctx.planning()) return;
  const TimeScope scope(ctx.profile, TimeCategory::kOther);
  cuda::drop_over_capacity(*ctx.gpu, {.experts = experts.as<int32_t>(),
                                      .dropped = dropped.as<int64_t>(),
                                      .all_experts = all_experts.as<int32_t>(),
                                      .all_rows = all_rows.as<int64_t>(),
                                      .sorted = order->as<int64_t>(),
                                      .other = order->as<int64_t>() + tokens,
                                      .own = experts.size(0),
                                      .tokens = tokens,
                                      .k = k,
                                      .first = first,
                                      .num_experts = num_experts,
                                      .capacity = capacity,
                                      .counts = counts->as<int32_t>(),
                                      .totals = totals->as<int64_t>()});
}

}  // namespace

void order_by_expert(Ctx& ctx, const Tensor& pairs, const Tensor& places, const Tensor& counts,
                     const ConstTensor& experts) {
  constexpr const char* kOp = "order_by_expert";
  const int64_t n = experts.numel(), num_experts = counts.size(0);
  check_operand(kOp, "experts", experts, DType::kI32, experts.shape());
  check_operand(kOp, "pairs", pairs, DType::kI32, {n});
  check_operand(kOp, "places", places, DType::kI32, experts.shape());
  check_operand(kOp, "counts", counts, DType::kI64, {num_experts});
  if (ctx.gpu != nullptr) return order_on_gpu(ctx, pairs, places, counts, experts);
  const Activation next = ctx.allocate("experts.next_place", DType::kI64, {num_experts});
  if (ctx.planning()) return;
  const TimeScope scope(ctx.profile, TimeCategory::kOther);
  const auto* expert = experts.as<int32_t>();
  auto* count = counts.as<int64_t>();
  auto* place = next->as<int64_t>();
  std::fill_n(count, num_experts, int64_t{0});
  for (int64_t p = 0; p < n; ++p) {
    TRIREME_CHECK(expert[p] >= -1 && expert[p] < num_experts, kOp, ": pair ", p, " has expert ",
                  expert[p], ", expected -1 to ", num_experts - 1);
    if (expert[p] >= 0) ++count[expert[p]];
  }
  std::exclusive_scan(count, count + num_experts, place, int64_t{0});
  for (int64_t p = 0; p < n; ++p) {
    places.as<int32_t>()[p] = -1;
    if (expert[p] < 0) continue;
    const int64_t q = place[expert[p]]++;
    places.as<int32_t>()[p] = static_cast<int32_t>(q);
    pairs.as<int32_t>()[q] = static_cast<int32_t>(p);
  }
}

int64_t expert_capacity(double factor, int64_t tokens, int64_t k, int64_t experts) {
  return static_cast<int64_t>(
      std::ceil(factor * static_cast<double>(tokens * k) / static_cast<double>(experts)));
}

void drop_over_capacity(Ctx& ctx, const Tensor& experts, const Tensor& dropped,
                        const ConstTensor& all_experts, const ConstTensor& all_rows, int64_t first,
                        int64_t num_experts, int64_t capacity) {
  constexpr const char* kOp = "drop_over_capacity";
  TRIREME_CHECK(experts.rank() == 2 && all_experts.rank() == 2, kOp, ": experts are ",
                experts.shape(), " of ", all_experts.shape(), ", expected (T, k) of (N, k)");
  const int64_t own = experts.size(0), k = experts.size(1), tokens = all_experts.size(0);
  check_operand(kOp, "experts", experts, DType::kI32, {own, k});
  check_operand(kOp, "all_experts", all_experts, DType::kI32, {tokens, k});
  check_operand(kOp, "all_rows", all_rows, DType::kI64, {tokens});
  check_operand(kOp, "dropped", dropped, DType::kI64, {1});
  TRIREME_CHECK(first >= 0 && first + own <= tokens, kOp, ": this rank has tokens ", first, " to ",
                first + own, " of the batch's ", tokens);
  if (ctx.gpu != nullptr)
    return drop_on_gpu(ctx, experts, dropped, all_experts, all_rows, first, num_experts, capacity);
  const Activation order = ctx.allocate("experts.token_order", DType::kI64, {tokens});
  const Activation taken = ctx.allocate("experts.taken", DType::kI64, {num_experts});
  if (ctx.planning()) return;
  const TimeScope scope(ctx.profile, TimeCategory::kOther);
  const auto* row = all_rows.as<int64_t>();
  const auto* chosen = all_experts.as<int32_t>();
  auto* index = order->as<int64_t>();
  auto* count = taken->as<int64_t>();
  std::iota(index, index + tokens, int64_t{0});
  std::sort(index, index + tokens,
            [row](int64_t a, int64_t b) { return row[a] < row[b] || (row[a] == row[b] && a < b); });
  std::fill_n(count, num_experts, int64_t{0});
  int64_t lost = 0;
  for (int64_t i = 0; i < tokens; ++i) {
    const int64_t t = index[i];
    for (int64_t j = 0; j < k; ++j) {
      const int32_t e = chosen[t * k + j];
      TRIREME_CHECK(e >= -1 && e < num_experts, kOp, ": token ", t, " has expert ", e,
                    ", expected -1 to ", num_experts - 1);
      if (e < 0 || count[e]++ < capacity || t < first || t >= first + own) continue;
      experts.as<int32_t>()[(t - first) * k + j] = -1;
      ++lost;
    }
  }
  *dropped.as<int64_t>() = lost;
}

void gather_rows(Ctx& ctx, const Tensor& out, const ConstTensor& x, const ConstTensor& pairs,
                 int64_t k) {
  constexpr const char* kOp = "gather_rows";
  TRIREME_CHECK(x.rank() == 2 && k >= 1, kOp, ": x is ", x.shape(), ", k is ", k,
                ", expected (T, C) and k >= 1");
  check_operand(kOp, "pairs", pairs, DType::kI32, {pairs.numel()});
  check_operand(kOp, "x", x, x.dtype(), x.shape());
  check_operand(kOp, "out", out, x.dtype(), {pairs.numel(), x.size(1)});
  if (ctx.planning()) return;
  const TimeScope scope(ctx.profile, TimeCategory::kOther);
  dispatch_float(kOp, x.dtype(), [&]<class T>() {
    const cpu::GatherRows<T> args{.out = out.as<T>(),
                                  .x = x.as<T>(),
                                  .pairs = pairs.as<int32_t>(),
                                  .rows = pairs.numel(),
                                  .columns = x.size(1),
                                  .k = k};
    if (ctx.gpu != nullptr) return cuda::gather_rows<T>(*ctx.gpu, args);
    TRIREME_KERNEL(gather_rows<T>)(args, ctx.threads);
  });
}

void combine_rows(Ctx& ctx, const Tensor& y, const ConstTensor& rows, const ConstTensor& places,
                  const ConstTensor& weights) {
  constexpr const char* kOp = "combine_rows";
  check_combine(kOp, "y", y, rows, places);
  if (weights.present())
    check_operand(kOp, "weights", weights, sum_dtype(y.dtype()), places.shape());
  if (ctx.planning()) return;
  const TimeScope scope(ctx.profile, TimeCategory::kOther);
  dispatch_float(kOp, y.dtype(), [&]<class T>() {
    using F = compute_t<T>;
    const cpu::CombineRows<T> args{.y = y.as<T>(),
                                   .rows = rows.as<T>(),
                                   .places = places.as<int32_t>(),
                                   .weights = weights.present() ? weights.as<F>() : nullptr,
                                   .tokens = y.size(0),
                                   .columns = y.size(1),
                                   .k = places.size(1)};
    if (ctx.gpu != nullptr) return cuda::combine_rows<T>(*ctx.gpu, args);
    TRIREME_KERNEL(combine_rows<T>)(args, ctx.threads);
  });
}

void combine_rows_backward(Ctx& ctx, const Tensor& d_rows, const Tensor& d_weights,
                           const ConstTensor& dy, const ConstTensor& rows,
                           const ConstTensor& places, const ConstTensor& weights) {
  constexpr const char* kOp = "combine_rows_backward";
  check_combine(kOp, "dy", dy, rows, places);
  check_operand(kOp, "d_rows", d_rows, dy.dtype(), rows.shape());
  check_operand(kOp, "weights", weights, sum_dtype(dy.dtype()), places.shape());
  check_operand(kOp, "d_weights", d_weights, sum_dtype(dy.dtype()), places.shape());
  if (ctx.planning()) return;
  const TimeScope scope(ctx.profile, TimeCategory::kOther);
  dispatch_float(kOp, dy.dtype(), [&]<class T>() {
    using F = compute_t<T>;
    const cpu::CombineRowsBackward<T> args{.d_rows = d_rows.as<T>(),
                                           .d_weights = d_weights.as<F>(),
                                           .dy = dy.as<T>(),
                                           .rows = rows.as<T>(),
                                           .places = places.as<int32_t>(),
                                           .weights = weights.as<F>(),
                                           .tokens = dy.size(0),
                                           .columns = dy.size(1),
                                           .k = places.size(1)};
    if (ctx.gpu != nullptr) return cuda::combine_rows_backward<T>(*ctx.gpu, args);
    TRIREME_KERNEL(combine_rows_backward<T>)(args, ctx.threads);
  });
}

void scale_rows(Ctx& ctx, const Tensor& y, const ConstTensor& x, const ConstTensor& gate,
                bool accumulate) {
  constexpr const char* kOp = "scale_rows";
  TRIREME_CHECK(x.rank() == 2, kOp, ": x is ", x.shape(), ", expected (T, C)");
  check_operand(kOp, "x", x, x.dtype(), x.shape());
  check_operand(kOp, "y", y, x.dtype(), x.shape());
  check_operand(kOp, "gate", gate, sum_dtype(x.dtype()), {x.size(0)});
  if (ctx.planning()) return;
  const TimeScope scope(ctx.profile, TimeCategory::kOther);
  dispatch_float(kOp, x.dtype(), [&]<class T>() {
    const cpu::ScaleRows<T> args{.y = y.as<T>(),
                                 .x = x.as<T>(),
                                 .gate = gate.as<compute_t<T>>(),
                                 .rows = x.size(0),
                                 .columns = x.size(1),
                                 .accumulate = accumulate};
    if (ctx.gpu != nullptr) return cuda::scale_rows<T>(*ctx.gpu, args);
    TRIREME_KERNEL(scale_rows<T>)(args, ctx.threads);
  });
}

void dot_rows(Ctx& ctx, const Tensor& out, const ConstTensor& a, const ConstTensor& b) {
  constexpr const char* kOp = "dot_rows";
  TRIREME_CHECK(a.rank() == 2, kOp, ": a is ", a.shape(), ", expected (T, C)");
  check_operand(kOp, "a", a, a.dtype(), a.shape());
  check_operand(kOp, "b", b, a.dtype(), a.shape());
  check_operand(kOp, "out", out, sum_dtype(a.dtype()), {a.size(0)});
  if (ctx.planning()) return;
  const TimeScope scope(ctx.profile, TimeCategory::kOther);
  dispatch_float(kOp, a.dtype(), [&]<class T>() {
    const cpu::DotRows<T> args{.out = out.as<compute_t<T>>(),
                               .a = a.as<T>(),
                               .b = b.as<T>(),
                               .rows = a.size(0),
                               .columns = a.size(1)};
    if (ctx.gpu != nullptr) return cuda::dot_rows<T>(*ctx.gpu, args);
    TRIREME_KERNEL(dot_rows<T>)(args, ctx.threads);
  });
}

}  // namespace trireme
