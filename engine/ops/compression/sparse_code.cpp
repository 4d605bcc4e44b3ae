#include "engine/ops/compression/sparse_code.h"

#include <algorithm>
#include <cmath>

#include "engine/ops/backend/pick_kernel.h"
#include "engine/ops/compression/sparse_code.kernels.h"

namespace trireme {
namespace {

static_assert(kMaxSparseBlock == cpu::kMaxSparseWidth);

void check_code(const SparseCode& code) {
  TRIREME_CHECK(code.ratio > 0 && code.ratio <= 1, "sparse code with ratio ", code.ratio,
                ", expected (0, 1]");
  TRIREME_CHECK(code.block > 0 && code.block <= kMaxSparseBlock, "sparse code with blocks of ",
                code.block, " columns, expected 1 to ", kMaxSparseBlock);
}

cpu::SparseShape sparse_shape(const SparseCode& code, int64_t rows, int64_t columns) {
  check_code(code);
  const int64_t blocks = ceil_div(columns, code.block);
  const int64_t last = columns - (blocks - 1) * code.block;
  const int64_t kept = kept_in_block(code, code.block);
  return {.rows = rows,
          .columns = columns,
          .block = code.block,
          .blocks = blocks,
          .kept = kept,
          .last_kept = blocks == 0 ? 0 : kept_in_block(code, last),
          .row_kept = kept_in_row(code, columns)};
}

cpu::SparseShape check_shape(const char* op, const SparseCode& code, const ConstTensor& x,
                             const ConstTensor& index) {
  TRIREME_CHECK(x.rank() == 2, op, ": x is ", x.shape(), ", expected (R, C)");
  check_contiguous(op, "x", x);
  const cpu::SparseShape shape = sparse_shape(code, x.size(0), x.size(1));
  check_operand(op, "index", index, DType::kU16, {shape.rows, shape.row_kept});
  return shape;
}

template <class T>
compute_t<T>* pointer(const Tensor& residual) {
  return residual.present() ? residual.as<compute_t<T>>() : nullptr;
}

}  // namespace

int64_t kept_in_block(const SparseCode& code, int64_t width) {
  return std::max<int64_t>(1, std::llround(code.ratio * static_cast<double>(width)));
}

int64_t kept_in_row(const SparseCode& code, int64_t columns) {
  check_code(code);
  const int64_t whole = columns / code.block, last = columns % code.block;
  return whole * kept_in_block(code, code.block) + (last == 0 ? 0 : kept_in_block(code, last));
}

void select_largest(Ctx& ctx, const SparseCode& code, const Tensor& index, const ConstTensor& x,
                    const Tensor& residual) {
  const char* const op = "select_largest";
  const cpu::SparseShape shape = check_shape(op, code, x, index);
  if (residual.present()) check_operand(op, "residual", residual, sum_dtype(x.dtype()), x.shape());
  if (ctx.planning() || x.numel() == 0) return;
  const TimeScope scope(ctx.profile, TimeCategory::kOther);
  dispatch_float(op, x.dtype(), [&]<class T>() {
    const cpu::SelectLargest<T> args{index.as<uint16_t>(), x.as<T>(), pointer<T>(residual), shape};
    if (ctx.gpu != nullptr) return cuda::select_largest<T>(*ctx.gpu, args);
    TRIREME_KERNEL(select_largest<T>)(args, ctx.threads);
  });
}

void select_random(Ctx& ctx, const SparseCode& code, const Tensor& index, int64_t columns,
                   const RandomBlocks& blocks) {
  const char* const op = "select_random";
  TRIREME_CHECK(index.rank() == 2, op, ": index is ", index.shape(), ", expected (R, K)");
  const cpu::SparseShape shape = sparse_shape(code, index.size(0), columns);
  check_operand(op, "index", index, DType::kU16, {shape.rows, shape.row_kept});
  TRIREME_CHECK(blocks.first >= 0 && (blocks.stride == 0 || blocks.stride >= shape.blocks), op,
                ": first block ", blocks.first, ", stride ", blocks.stride);
  if (ctx.planning() || index.numel() == 0) return;
  const TimeScope scope(ctx.profile, TimeCategory::kOther);
  const cpu::SelectRandom args{index.as<uint16_t>(), blocks.key, blocks.first,
                               blocks.stride == 0 ? shape.blocks : blocks.stride, shape};
  if (ctx.gpu != nullptr) return cuda::select_random(*ctx.gpu, args);
  TRIREME_KERNEL(select_random<cpu::SelectRandom>)(args, ctx.threads);
}

void gather_selected(Ctx& ctx, const SparseCode& code, const Tensor& values,
                     const ConstTensor& index, const ConstTensor& x, const Tensor& residual) {
  const char* const op = "gather_selected";
  const cpu::SparseShape shape = check_shape(op, code, x, index);
  check_operand(op, "values", values, sum_dtype(x.dtype()), index.shape());
  if (residual.present()) check_operand(op, "residual", residual, sum_dtype(x.dtype()), x.shape());
  if (ctx.planning() || x.numel() == 0) return;
  const TimeScope scope(ctx.profile, TimeCategory::kOther);
  dispatch_float(op, x.dtype(), [&]<class T>() {
    const cpu::GatherSelected<T> args{values.as<compute_t<T>>(), index.as<uint16_t>(), x.as<T>(),
                                      pointer<T>(residual), shape};
    if (ctx.gpu != nullptr) return cuda::gather_selected<T>(*ctx.gpu, args);
    TRIREME_KERNEL(gather_selected<T>)(args, ctx.threads);
  });
}

void scatter_selected(Ctx& ctx, const SparseCode& code, const Tensor& y, const ConstTensor& values,
                      const ConstTensor& index, bool add) {
  const char* const op = "scatter_selected";
  const cpu::SparseShape shape = check_shape(op, code, y, index);
  check_operand(op, "values", values, sum_dtype(y.dtype()), index.shape());
  if (ctx.planning() || y.numel() == 0) return;
  const TimeScope scope(ctx.profile, TimeCategory::kOther);
  dispatch_float(op, y.dtype(), [&]<class T>() {
    const cpu::ScatterSelected<T> args{y.as<T>(), values.as<compute_t<T>>(), index.as<uint16_t>(),
                                       shape, add};
    if (ctx.gpu != nullptr) return cuda::scatter_selected<T>(*ctx.gpu, args);
    TRIREME_KERNEL(scatter_selected<T>)(args, ctx.threads);
  });
}

}  // namespace trireme
