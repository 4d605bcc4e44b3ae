#include "engine/ops/rows/embedding.h"

#include "engine/ops/backend/index_check.h"
#include "engine/ops/backend/pick_kernel.h"
#include "engine/ops/rows/counting_scratch.cuda.h"
#include "engine/ops/rows/elementwise.h"
#include "engine/ops/rows/embedding.kernels.h"

namespace trireme {
namespace {

// Size of the whole vocabulary; checks the ids against it if the host can read them.
int64_t check_ids(const Ctx& ctx, const char* op, const ConstTensor& ids, int64_t rows,
                  const TableShard& shard) {
  const int64_t total = shard.total > 0 ? shard.total : rows;
  TRIREME_CHECK(shard.first >= 0 && shard.first + rows <= total, op, ": rows ", shard.first, " to ",
                shard.first + rows, " exceed the vocabulary of ", total);
  if (ctx.gpu == nullptr) check_indices(op, "ids", ids, total);
  return total;
}

}  // namespace

void embedding_forward(Ctx& ctx, const Tensor& y, const ConstTensor& table, const ConstTensor& ids,
                       bool accumulate, const TableShard& shard) {
  TRIREME_CHECK(table.rank() == 2 && ids.rank() == 1, "embedding_forward: table is ", table.shape(),
                ", ids ", ids.shape(), ", expected (V, C) and (T)");
  check_contiguous("embedding_forward", "table", table);
  check_operand("embedding_forward", "ids", ids, DType::kI32, ids.shape());
  check_operand("embedding_forward", "y", y, table.dtype(), {ids.size(0), table.size(1)});
  if (ctx.planning()) return;
  const TimeScope scope(ctx.profile, TimeCategory::kOther);
  const int64_t vocabulary = check_ids(ctx, "embedding_forward", ids, table.size(0), shard);
  dispatch_float("embedding_forward", table.dtype(), [&]<class T>() {
    const cpu::EmbeddingForward<T> args{.y = y.as<T>(),
                                        .table = table.as<T>(),
                                        .ids = ids.as<int32_t>(),
                                        .rows = ids.size(0),
                                        .columns = table.size(1),
                                        .first_entry = shard.first,
                                        .entries = table.size(0),
                                        .vocabulary = vocabulary,
                                        .accumulate = accumulate};
    if (ctx.gpu != nullptr) return cuda::embedding_forward<T>(*ctx.gpu, args);
    TRIREME_KERNEL(embedding_forward<T>)(args, ctx.threads);
  });
}

void embedding_backward(Ctx& ctx, const Tensor& d_table, const ConstTensor& dy,
                        const ConstTensor& ids, bool accumulate, const TableShard& shard) {
  TRIREME_CHECK(d_table.rank() == 2 && ids.rank() == 1, "embedding_backward: d_table is ",
                d_table.shape(), ", ids ", ids.shape(), ", expected (V, C) and (T)");
  check_operand("embedding_backward", "d_table", d_table, sum_dtype(dy.dtype()), d_table.shape());
  check_operand("embedding_backward", "ids", ids, DType::kI32, ids.shape());
  check_operand("embedding_backward", "dy", dy, dy.dtype(), {ids.size(0), d_table.size(1)});
  Activation order, totals;  // for a GPU's sort of the tokens
  const int64_t counts = cuda::kDigitBuckets * cuda::order_chunks(ids.size(0));
  if (ctx.gpu != nullptr) {
    order = ctx.allocate("embedding.order", DType::kI32, Shape{4 * ids.size(0) + counts});
    totals = ctx.allocate("embedding.totals", DType::kI64, Shape{cuda::kDigitBuckets});
  }
  if (ctx.planning()) return;
  check_ids(ctx, "embedding_backward", ids, d_table.size(0), shard);
  if (!accumulate) fill_zero(ctx, d_table);
  const TimeScope scope(ctx.profile, TimeCategory::kOther);
  dispatch_float("embedding_backward", dy.dtype(), [&]<class T>() {
    const cpu::EmbeddingBackward<T> args{.d_table = d_table.as<compute_t<T>>(),
                                         .dy = dy.as<T>(),
                                         .ids = ids.as<int32_t>(),
                                         .rows = ids.size(0),
                                         .columns = d_table.size(1),
                                         .first_entry = shard.first,
                                         .entries = d_table.size(0)};
    if (ctx.gpu != nullptr) {
      const auto part = [&](int64_t i) { return order->as<int32_t>() + i * args.rows; };
      return cuda::embedding_backward<T>(
          *ctx.gpu, args, {{part(0), part(1)}, {part(2), part(3)}, part(4), totals->as<int64_t>()});
    }
    TRIREME_KERNEL(embedding_backward<T>)(args, ctx.threads);
  });
}

}  // namespace trireme
