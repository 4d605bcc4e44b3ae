// Codes of gradients for slow links in `bench ops`, with error feedback as in training.
#include "commands/bench/op_timer.h"
#include "engine/ops/compression/block_code.h"
#include "engine/ops/compression/sparse_code.h"

namespace trireme {
namespace {

constexpr int64_t kRows = 2048, kColumns = 4096;  // more than any cache holds

void time_block_code(OpTimer& timer, const BlockCode& code, const Tensor& x,
                     const Tensor& residual) {
  Ctx& ctx = timer.ctx();
  Operands m(ctx);
  const Tensor scale = m.zeros(DType::kF32, {kRows, ceil_div(kColumns, code.block)});
  const Tensor codes = m.zeros(DType::kU8, {kRows, block_code_bytes(code, kColumns)});
  const auto matrix = static_cast<double>(x.bytes());
  const auto coded = static_cast<double>(scale.bytes() + codes.bytes());
  timer.time(concat("encode, ", code.bits, code.bits == 1 ? " bit" : " bits"), x.shape(),
             3 * matrix + coded, 0, [&] { encode_blocks(ctx, code, scale, codes, x, residual); });
  timer.time(concat("decode and add, ", code.bits, code.bits == 1 ? " bit" : " bits"), x.shape(),
             2 * matrix + coded, 0,
             [&] { decode_blocks(ctx, code, residual, scale, codes, true); });
}

void time_sparse_code(OpTimer& timer, const SparseCode& code, const Tensor& x,
                      const Tensor& residual) {
  Ctx& ctx = timer.ctx();
  Operands m(ctx);
  const Shape kept{kRows, kept_in_row(code, kColumns)};
  const Tensor index = m.zeros(DType::kU16, kept), values = m.zeros(DType::kF32, kept);
  const auto matrix = static_cast<double>(x.bytes());
  const auto sent = static_cast<double>(index.bytes() + values.bytes());
  timer.time("select the largest 1 %", x.shape(), 2 * matrix + sent, 0,
             [&] { select_largest(ctx, code, index, x, residual); });
  timer.time("select 1 % at random", x.shape(), static_cast<double>(index.bytes()), 0, [&] {
    select_random(ctx, code, index, kColumns, {.key = {1, 2}});
  });
  timer.time("gather the selected", x.shape(), 3 * matrix + sent, 0,
             [&] { gather_selected(ctx, code, values, index, x, residual); });
  timer.time("scatter-add of the selected", x.shape(), 2 * sent, 0,
             [&] { scatter_selected(ctx, code, residual, values, index, true); });
}

}  // namespace

void time_compression(OpTimer& timer) {
  if (timer.dtype() != DType::kF32) return;
  Operands m(timer.ctx());
  const Tensor x = m.make(DType::kF32, {kRows, kColumns});
  const Tensor residual = m.zeros(DType::kF32, {kRows, kColumns});
  for (const BlockCode& code : {BlockCode{8, 256}, BlockCode{4, 256}, BlockCode{1, 1024}})
    time_block_code(timer, code, x, residual);
  time_sparse_code(timer, {}, x, residual);
}

}  // namespace trireme
