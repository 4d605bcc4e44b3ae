#include "transformer/model/sequence_logits.h"

#include <numeric>

#include "engine/ops/rows/transfer.h"
#include "transformer/pass/mode_scope.h"

namespace trireme {
namespace {

// Copy of values on the context's device.
template <class T>
Buffer placed(Ctx& ctx, const char* name, const std::vector<T>& values) {
  Buffer buffer(name, std::ssize(values) * static_cast<int64_t>(sizeof(T)), ctx.memory());
  transfer(ctx, buffer.tensor(dtype_of<T>, Shape{std::ssize(values)}),
           ConstTensor(values.data(), dtype_of<T>, Shape{std::ssize(values)}));
  return buffer;
}

}  // namespace

std::vector<float> sequence_logits(const Model& model, ParameterStore& params, Ctx& ctx,
                                   const Groups& groups, std::span<const int32_t> ids) {
  TRIREME_CHECK(groups.layout.pp.size == 1 && model.chunks() == 1,
                "sequence_logits() needs all layers on one rank");
  const auto count = std::ssize(ids);
  std::vector<int32_t> positions(ids.size());
  std::iota(positions.begin(), positions.end(), 0);
  std::vector<int64_t> rows(positions.begin(), positions.end());
  const std::vector<int32_t> offsets = {0, static_cast<int32_t>(count)};
  const Buffer ids_block = placed(ctx, "ids", std::vector<int32_t>(ids.begin(), ids.end()));
  const Buffer positions_block = placed(ctx, "positions", positions);
  const Buffer rows_block = placed(ctx, "rows", rows);
  const Buffer offsets_block = placed(ctx, "offsets", offsets);
  const int64_t chunk = model.config().attention_chunk;
  const std::vector<int32_t> chunks =
      chunk > 0 ? chunk_offsets(offsets, chunk) : std::vector<int32_t>{0};
  const Buffer chunks_block = placed(ctx, "chunks", chunks);

  Tokens tokens;
  tokens.count = count;
  tokens.ids = ids_block.tensor(DType::kI32, Shape{count});
  tokens.positions = positions_block.tensor(DType::kI32, Shape{count});
  tokens.position_end = count;
  tokens.global_index = rows_block.tensor(DType::kI64, Shape{count});
  tokens.cu_q = offsets_block.tensor(DType::kI32, Shape{2});
  tokens.chunks.cu_q = chunks_block.tensor(DType::kI32, Shape{std::ssize(chunks)});
  tokens.chunks.max_seqlen = std::min(count, chunk);
  tokens.sequence_length = tokens.uniform_length = tokens.max_seqlen = count;
  const ModeScope mode(ctx, Mode::kInfer);
  Pass pass{.ctx = ctx, .params = params, .tokens = tokens, .groups = &groups};
  const int64_t vocabulary = model.config().vocab_size;
  const DType dtype = params.gradient_dtype();  // float32, or float64 of float64 weights
  const Buffer block("logits", count * vocabulary * dtype_size(dtype), ctx.memory());
  const Tensor logits = block.tensor(dtype, Shape{count, vocabulary});
  model.logits(pass, model.forward(pass, 0, {}, nullptr, Recompute::kNone), logits);
  if (dtype == DType::kF32) return to_host<float>(ctx, logits);
  const std::vector<double> values = to_host<double>(ctx, logits);
  return {values.begin(), values.end()};
}

}  // namespace trireme
